#pragma once

#include "sim/replay.hpp"

namespace shardmark {

/// Where the window [0, window_ns) of a rank went. `timed` belongs to `list`, op by op.
[[nodiscard]] RankTime account(std::span<const OpRecord> list, std::span<const TimedOp> timed,
                               std::int64_t window_ns);

}  // namespace shardmark
