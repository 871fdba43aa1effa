#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/result.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// The rows of a run in the order in which they are measured.
struct Sweep {
  std::vector<Case> cases;
  std::size_t num_finished{0};       ///< cases left out because --resume found their rows
  std::vector<std::string> notices;  ///< what the user may not expect: collapsed rows, padding
};

/// Every combination of the options' lists. tp varies within one shape, smallest first, so that
/// later rows can be compared with tp 1. A case whose shape does not split gets a skip_reason.
/// At tp 1 there is nothing to communicate: all its variants are one case. Throws InputError when
/// no case at all can run, and when no collective is done as --algorithm says.
[[nodiscard]] Sweep expand(const Options& options, int world_size);

/// Throws InputError with the reasons when every case has a skip_reason.
void fail_if_nothing_runs(const Sweep& sweep);

/// Notes which collectives of the cases --algorithm leaves as they are, among them those for whose
/// size the table of auto has no row. Throws InputError when it is all of an axis, or it has none.
void note_plans(const Options& options, Sweep& sweep);

/// Equal for cases that differ only in how they are split and overlapped.
[[nodiscard]] std::string shape_key(const Case& config);
/// "block step f32 hidden 1024 seq 512 batch 1"
[[nodiscard]] std::string describe_shape(const Case& config);
/// "tp 2 sp overlap", "cp 4 ring zigzag tp 2 overlap"
[[nodiscard]] std::string describe_split(const Parallel& parallel);
/// "1f1b pp 2 x 2 chunks m 8 dp 2 merged", "decode pp 2 requests 4 tokens 32"; empty without a
/// pipeline. Tells rows of one shape and tp apart.
[[nodiscard]] std::string describe_pipeline(const Case& config);
/// Shape and split.
[[nodiscard]] std::string describe(const Case& config);

}  // namespace shardmark::bench
