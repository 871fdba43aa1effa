#pragma once

#include "bench/analyze/across.hpp"
#include "bench/analyze/match.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// Where the collectives of a group leave no offset at all, the n-th ones of the files are not the
/// same: the group is taken out of `matches`, with a warning.
void drop_contradictions(const Recording& recording, Matches& matches);

/// Offsets against the first rank. `warnings` gets a sentence where there is none.
[[nodiscard]] ClockAlignment align_clocks(const Recording& recording,
                                          const std::vector<Match>& matches,
                                          std::vector<std::string>& warnings);

}  // namespace shardmark::bench
