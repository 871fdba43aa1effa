#pragma once

#include "bench/analyze/recording.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Clocks of the ranks against rank 0's, from collectives that all members must join: they end at
/// about the same time everywhere.
struct ClockAlignment {
  std::vector<std::int64_t> offset_ns;  ///< per rank, to be added
  std::vector<std::int64_t> bound_ns;   ///< per rank: the offset is right to within this
  std::int64_t num_matched{0};          ///< collectives that it comes from
};

/// One collective on all of its members that have files.
struct MatchedCollective {
  std::string kind, group;
  std::int64_t number{0};                ///< n-th of its group
  std::vector<int> ranks;                ///< positions in Recording::ranks
  std::vector<std::int64_t> arrival_ns;  ///< aligned starts, in the order of `ranks`
  std::vector<std::int64_t> duration_ns;
  std::int64_t transfer_ns{0};  ///< the shortest duration; valid only if `complete`
  int last_arriver{-1};         ///< position in Recording::ranks
  bool complete{false};         ///< every member of the group has a file
};

/// A rank's share of what all collectives cost.
struct RankAcross {
  std::int64_t wait_ns{0}, transfer_ns{0};
  std::int64_t num_last{0};  ///< collectives that it joined last
  std::int64_t compute_ns{0};
};

struct AcrossRanks {
  ClockAlignment clocks;
  std::vector<MatchedCollective> collectives;
  std::vector<RankAcross> ranks;      ///< as Recording::ranks
  double imbalance{0};                ///< slowest over fastest rank's compute time; 0 = one rank
  std::vector<int> critical_rank;     ///< per step: position in Recording::ranks
  std::vector<std::string> warnings;  ///< missing ranks, collectives that do not match, ...
};
/// Nothing with fewer than two ranks. With window.span set, only what lies in it.
[[nodiscard]] std::optional<AcrossRanks> analyse_across(const Recording& recording,
                                                        const Window& window);

}  // namespace shardmark::bench
