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

/// The number of head chunks, at most `wanted`, in which the kind exchanges heads with overlap:
/// Ulysses cuts the query heads that a rank has after the exchange, and its KV heads evenly or not
/// at all; all-gather cuts its KV heads; a ring does not cut heads.
[[nodiscard]] int usable_head_chunks(const LayerConfig& config, int wanted);

}  // namespace shardmark::bench::context
