#pragma once

#include "bench/collectives/clocks.hpp"
#include "bench/collectives/workspace.hpp"

#include <span>

namespace shardmark::bench::collectives {

/// Arrival and end of one call on one rank, on the common clock.
struct Stamp {
  std::int64_t arrival_ns{0}, end_ns{0};
};
/// Medians over the calls: stamps[rank][call]; `members[rank]` are the ranks that rank waits for.
[[nodiscard]] std::vector<Wait> split_waits(std::span<const std::vector<Stamp>> stamps,
                                            std::span<const std::vector<int>> members);

/// Calls one by one, each after a barrier, with stamps; fills row.waits, and with --skew-us first
/// row.waits_unskewed. Collective.
void measure_waits(Row& row, const Runnable& runnable, const Options& options, const World& world,
                   const Clocks& clocks, Workspace& workspace, Transport& transport);

}  // namespace shardmark::bench::collectives
