#pragma once

#include "core/record.hpp"

#include <string_view>

namespace shardmark::cuda {

/// Finds out when the work of each op ran on the GPU. Used from the rank's thread.
class KernelTimer {
 public:
  KernelTimer() = default;
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;
  virtual ~KernelTimer() = default;

  /// Before and after the calls of an op are enqueued.
  virtual void before_op(const OpRecord& record) = 0;
  virtual void after_op(const OpRecord& record) = 0;
  /// After everything is complete: the kernels since the last call, in order of their start, steady
  /// clock of the process.
  virtual void collect(KernelSink& sink) = 0;
  /// Where kernel times are from, in a run's provenance: "cupti" or "events".
  [[nodiscard]] virtual std::string_view name() const = 0;
};

}  // namespace shardmark::cuda
