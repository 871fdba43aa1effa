#pragma once

#include "bench/harness/result.hpp"

namespace shardmark::bench {

/// What the recorded rank of `config` does in one iteration; `flops_done` as the record has it.
[[nodiscard]] RankWork work_of(const Recording& recording, const LayerConfig& config);

}  // namespace shardmark::bench
