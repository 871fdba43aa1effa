#pragma once

// Times of kernels by CUPTI. A build without CUPTI's headers has the same functions and says so.

#include "core/cuda/kernel_timer.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace shardmark {

/// Kernels, copies and sets of the ops of one rank. CUPTI is on as long as one lives.
class CuptiTimer : public cuda::KernelTimer {
 public:
  struct Report {
    std::uint64_t num_dropped{0};     ///< records that CUPTI had no buffer for
    std::uint64_t num_without_op{0};  ///< work that nobody's op has enqueued
    std::uint64_t num_impossible{0};
    std::int64_t clock_bound_ns{0};  ///< between CUPTI's clock and the host's
  };
  /// Of all `collect` so far.
  [[nodiscard]] virtual const Report& report() const = 0;
  [[nodiscard]] std::string_view name() const override { return "cupti"; }
};
/// What is wrong with its times, a sentence; empty if nothing.
[[nodiscard]] std::string warning_of(const CuptiTimer::Report& report);

struct CuptiStart {
  std::unique_ptr<CuptiTimer> timer;
  std::string missing;  ///< why there is no timer
};
/// Not under Nsight Systems or Compute, which need CUPTI for themselves.
[[nodiscard]] CuptiStart start_cupti();

}  // namespace shardmark
