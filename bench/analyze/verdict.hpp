#pragma once

#include "bench/analyze/report.hpp"

namespace shardmark::bench::analyze {

/// What limits the run (METRICS: verdict), as far as a timeline tells: imbalanced, bubble_bound or
/// communication_bound, whichever costs most; else compute_bound where compute is more than half of
/// the window, and of the steps. A timeline has neither bytes of kernels nor the latency of links,
/// so memory_bound and latency_bound are never said. Else "none", with what takes the window and,
/// of idle time, its cause.
[[nodiscard]] Verdict judge(const Report& report);

}  // namespace shardmark::bench::analyze
