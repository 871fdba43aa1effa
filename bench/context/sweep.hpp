#pragma once

#include "bench/context/options.hpp"
#include "bench/harness/sweep.hpp"

namespace shardmark::bench::context {

/// Every combination of the options' lists, by shape and within it by tp, cp, kind, order, sequence
/// parallelism and overlap, so that rows of cp 1 come before those that are compared with them.
/// Combinations that differ only in what means nothing there (the order of Ulysses, anything at
/// cp 1) are one row, with a notice. A case that cannot run gets a skip_reason: its shape does not
/// split, or `must_fit` and the ranks do not. Throws InputError when no case can run.
[[nodiscard]] Sweep expand(const Options& options, int world_size, bool must_fit = true);

}  // namespace shardmark::bench::context
