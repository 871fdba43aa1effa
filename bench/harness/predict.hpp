#pragma once

#include "bench/harness/measure.hpp"
#include "sim/hardware.hpp"

namespace shardmark::bench {

/// The row of a configuration on a machine that is not there: its program is recorded and replayed
/// with the costs of `machine`, and the result filled as a measured one is. Of the times there is
/// only the median, and nothing was checked; memory is that of the recorded program on the cpu
/// backend, and `bytes_observed` that of its ops.
///
/// Ranks that differ only in their places along tp or dp are folded where that changes no time:
/// one of each class is recorded and has a trace and kernels; splits and work are there for all.
///
/// What the machine cannot run (more ranks than its only node has, a dtype without a peak) becomes
/// a row `skipped` with the reason.
[[nodiscard]] Outcome predict_row(const Case& config, const Machine& machine,
                                  const RunnerOptions& options);

}  // namespace shardmark::bench
