#pragma once

#include "sim/replay.hpp"

namespace shardmark {

/// What ops took in a measured run, to replay that run or another order of the same ops: of a
/// compute op the sum of its kernels; of a collective the shortest time of any member, since the
/// others' contains waiting; of a message the shorter of sender's and receiver's.
///
/// `lists[r]` and `kernels[r]` are rank r's. An op without a kernel takes no time.
[[nodiscard]] OpCost measured_cost(std::span<const std::vector<OpRecord>> lists,
                                   std::span<const std::vector<KernelRecord>> kernels);

}  // namespace shardmark
