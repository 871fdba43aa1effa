#pragma once

#include "bench/analyze/recording.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Parallelism that a group serves: "tp", "pp", "dp", "cp", "ep" or "?".
/// By `axis_of` (names of groups, of the command line) first, then the group's description, then
/// the distance of its ranks.
[[nodiscard]] std::string purpose_of(const ProcessGroup& group, int world_size,
                                     const std::map<std::string, std::string>& axis_of);

/// All calls of one collective with one group, type and size on one rank.
struct CollectiveRow {
  int rank{0};
  std::string kind;                   ///< all_reduce, all_gather, ..., send_recv, or "?"
  std::string group, purpose, dtype;  ///< empty if the file does not say
  int group_size{0};                  ///< 0 if the file does not say
  std::int64_t bytes{-1};             ///< S of the bus bandwidth; -1 if the file does not say
  std::int64_t count{0};
  double total_us{0}, p50_us{0}, p95_us{0}, min_us{0}, max_us{0};
  double exposed_us{0};                 ///< of the total, not under compute
  double algbw_GBps{0}, busbw_GBps{0};  ///< at the median; 0 if the size is not known
  std::string kernel;                   ///< name of the first
};
[[nodiscard]] std::vector<CollectiveRow> collective_rows(
    const Recording& recording, const Window& window,
    const std::map<std::string, std::string>& axis_of);

}  // namespace shardmark::bench
