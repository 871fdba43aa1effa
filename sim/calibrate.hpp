#pragma once

#include "sim/hardware.hpp"

#include <string>

namespace shardmark {

/// The machine that a run of shardmark-tp, -cp or -pp was measured on, from its kernels.csv and
/// run.json (as text; their columns and keys are described in results/README.md):
///
/// - rates of each compute op and dtype by size: the median over the calls of that size (sizes
///   within 5 % count as one) of the slowest rank's time, which is what a step waits for;
/// - peaks: the highest rate with FLOPs; memory bandwidth: the highest without;
/// - memory: an equal share of the host's, where run.json has it;
/// - latency and bandwidth of each collective and of all together: least squares on relative
///   errors of steps x latency + bytes / bandwidth, both not negative, over the shortest time of
///   any member, since the others' contains waiting; rows with overlap are left out. Messages of a
///   pipeline run beside compute: of those of one size the fastest counts, at either end. Where
///   messages differ in size by less than 16 times, all is bandwidth.
///
/// Launch and call overhead are 0: the measured times contain them. The machine is one node of as
/// many ranks as the run had, and without overlap. Sizes beyond the measured ones are predicted at
/// the rate of the nearest, so the run should span those of interest; rows with communication are
/// needed for links: tp, cp or pp of at least 2.
/// Throws InputError when a column is missing, when ranks shared cores or ran on several hosts, or
/// when there is no compute or no communication, naming what to run.
[[nodiscard]] Machine calibrate(const std::string& name, const std::string& kernels_csv,
                                const std::string& run_json);

}  // namespace shardmark
