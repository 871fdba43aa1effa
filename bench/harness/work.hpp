#pragma once

#include "bench/harness/result.hpp"

#include <span>

namespace shardmark::bench {

/// What the recorded rank of `config` does in one iteration; `flops_done` as the record has it.
[[nodiscard]] RankWork work_of(const Recording& recording, const LayerConfig& config);
/// The mean of `flops_done`; 0 without ranks.
[[nodiscard]] double mean_flops_done(std::span<const RankWork> ranks);

}  // namespace shardmark::bench
