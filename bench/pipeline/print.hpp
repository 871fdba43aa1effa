#pragma once

#include "bench/pipeline/sweep.hpp"

#include <string>

namespace shardmark::bench::pp {

/// What --print-schedule shows of every schedule, pipeline degree, number of chunks and of
/// micro-batches. Those that a schedule does not allow are named with the rule. csv and svg are of
/// one schedule. Throws InputError when there are several, or none is allowed.
[[nodiscard]] std::string print_schedules(const Options& options, int world_size);
/// The same of the cases of a sweep, which may be fitted to `times`; bubbles are those at these.
[[nodiscard]] std::string print_schedules(const Options& options, const Sweep& sweep,
                                          const MeasuredTimes& times);

}  // namespace shardmark::bench::pp
