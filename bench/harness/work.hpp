#pragma once

#include "bench/harness/result.hpp"

namespace shardmark::bench {

/// What the recorded rank does in one iteration; `flops_done` as the record has it.
[[nodiscard]] RankWork work_of(const Recording& recording);

}  // namespace shardmark::bench
