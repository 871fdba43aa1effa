#include "bench/harness/result.hpp"

#include <algorithm>
#include <limits>

namespace shardmark::bench {
namespace {

/// 100 x a / b - 100, or 0 when there is nothing to compare with.
double excess_pct(double a, double b) { return b > 0 ? 100 * (a / b - 1) : 0; }
double share_pct(double a, double b) { return b > 0 ? 100 * a / b : 0; }
/// The same of a peak, which may be unknown: not a number, which is an empty cell.
double share_of_peak_pct(double tflops, const Peak& peak) {
  const bool is_unknown = peak.tflops <= 0 && !peak.source.empty();
  return is_unknown ? std::numeric_limits<double>::quiet_NaN() : share_pct(tflops, peak.tflops);
}

}  // namespace

double Result::balance() const {
  double most = 0, sum = 0;
  for (const RankWork& rank : work) {
    most = std::max(most, rank.flops_useful);
    sum += rank.flops_useful;
  }
  return sum > 0 ? most * static_cast<double>(work.size()) / sum : 1;
}
double Result::speedup_ceiling() const { return cp() / balance(); }
double Result::tflops_per_device() const {
  return time.p50 > 0 ? flops_model_causal / (time.p50 * 1e-6) / num_ranks() / 1e12 : 0;
}
double Result::mfu_causal_pct() const { return share_of_peak_pct(tflops_per_device(), peak); }
double Result::mfu_full_pct() const {
  return flops_model_causal > 0 ? mfu_causal_pct() * flops_model_full / flops_model_causal : 0;
}
double Result::hfu_pct() const {
  return time.p50 > 0 ? share_of_peak_pct(flops_observed / (time.p50 * 1e-6) / 1e12, peak) : 0;
}
double Result::busbw_GBps() const {
  return communication_only_us > 0 ? bytes_observed / communication_only_us / 1e3 : 0;
}
double Result::overlap_pct() const { return share_pct(split.overlapped_us, split.comm_us); }
double Result::exposed_comm_pct() const {
  return share_pct(split.exposed_comm_us, split.window_us);
}
double Result::comp_tax_pct() const { return excess_pct(comp_together_us, comp_alone_us); }
double Result::comm_tax_pct() const { return excess_pct(comm_together_us, comm_alone_us); }
double Result::profiler_overhead_pct() const { return excess_pct(profiled_us, interleaved_us); }

}  // namespace shardmark::bench
