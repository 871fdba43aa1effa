#pragma once

#include "core/cuda/translate/call.hpp"
#include "core/types.hpp"

#include <string>

namespace shardmark::cuda {

/// NCCL's communicators of one rank, one for each (group, channel of a lane). Used from the rank's
/// thread.
class Communicators {
 public:
  Communicators() = default;
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  virtual ~Communicators() = default;

  /// Collective over the group's members, in the same order; free when done before.
  virtual void connect(const Group& group, Lane lane) = 0;
  /// Enqueues the calls on `stream`, a cudaStream_t. Group and lane must be connected.
  virtual void run(const NcclGroup& group, Lane lane, void* stream) = 0;
  /// What a communicator has reported since it was made, with its group and lane; empty if nothing.
  /// Never blocks; to be asked now and then while waiting.
  [[nodiscard]] virtual std::string find_error() = 0;
  /// Gives up whatever is in flight, so that streams come to an end although peers may not.
  virtual void abort() noexcept = 0;
};

}  // namespace shardmark::cuda
