#pragma once

#include "bench/analyze/report.hpp"

namespace shardmark::bench::analyze {

/// What can be compared of the ranks with device work: over the steps that all of them have, else
/// over the window.
[[nodiscard]] ComparedCompute compare_compute(const std::vector<RankReport>& ranks);

}  // namespace shardmark::bench::analyze
