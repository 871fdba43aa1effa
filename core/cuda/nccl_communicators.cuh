#pragma once

#include "core/cuda/nccl.hpp"
#include "core/cuda/nccl_library.cuh"
#include "core/record/channel.hpp"

#include <map>

namespace shardmark::cuda {

/// Communicators that do not block: NCCL's calls come back while they are in progress, and are
/// waited for here, where peers that are gone and the time-out are seen.
class NcclCommunicators final : public Communicators {
 public:
  /// Memory of the current device for one member's part of a barrier.
  struct Memory {
    std::byte* (*allocate)(){nullptr};
    void (*free)(std::byte*) noexcept {nullptr};
  };
  NcclCommunicators(Transport& transport, const NcclFunctions& functions, const Memory& memory)
      : transport_{transport}, nccl_{functions}, memory_{memory} {}
  /// Waits for the members to come to their ends as well; not when an exception is in flight.
  ~NcclCommunicators() override;

  void connect(const Group& group, Lane lane) override;
  void run(const NcclGroup& group, Lane lane, void* stream) override;
  [[nodiscard]] std::string find_error() override;
  void abort() noexcept override;

 private:
  struct Connection {
    Group group;
    Lane channel{Lane::compute};
    ncclComm_t communicator{nullptr};
    std::byte* barrier_byte{nullptr};
  };
  [[nodiscard]] ncclUniqueId share_id(const Group& group, Lane lane);
  [[nodiscard]] Connection& find(const Group& group, Lane lane);
  /// Waits until `result`, if in progress, is one way or the other. Throws Error, or PeerError
  /// where a peer is to blame, naming group, lane and `what`; nothing is in flight then.
  void settle(const Connection& connection, ncclResult_t result, std::string_view what);
  [[noreturn]] void fail(const Connection& connection, ncclResult_t result, std::string_view what);
  [[nodiscard]] ncclResult_t state_of(const Connection& connection) const;
  [[nodiscard]] std::string text_of(const Connection& connection, ncclResult_t result) const;
  void close();

  Transport& transport_;
  NcclFunctions nccl_;
  Memory memory_;
  std::map<ChannelKey, Connection> connections_;
};

}  // namespace shardmark::cuda
