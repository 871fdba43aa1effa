#pragma once

#include "bench/harness/sweep.hpp"
#include "bench/pipeline/balance.hpp"
#include "bench/pipeline/options.hpp"

namespace shardmark::bench::pp {

/// Every combination of the options' lists: by shape, then tp, dp and pp, micro-batches, chunks,
/// schedule, p2p, balance, recomputation and sequence parallelism, so that schedules of the same
/// work follow each other. Combinations that differ only in what means nothing there (chunks of
/// 1f1b, messages at pp 1) are one row. A case that cannot run gets a skip_reason: the schedule or
/// the shape does not allow it, or `must_fit` and the ranks do not. Balance::measured and --fit go
/// by `times`; without them, by count and by equal times. Throws InputError when no case can run.
[[nodiscard]] Sweep expand(const Options& options, int world_size, bool must_fit = true,
                           const MeasuredTimes& times = {});

}  // namespace shardmark::bench::pp
