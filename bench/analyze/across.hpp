#pragma once

#include "bench/analyze/collectives.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Clocks of the ranks against the first one's. A collective that all members must join cannot end
/// on one of them before it has begun on all others; each gives an interval for the offset. Within
/// what all of them leave, the offset is where ends agree best (their median difference). Devices
/// of one file share its clock: offset and bound are 0. So is the offset, but not the bound, of
/// ranks in a trace of ours, whose rows begin at a barrier.
struct ClockAlignment {
  std::vector<std::int64_t> offset_ns;  ///< per rank, to be added
  /// Per rank: the offset is right to within this, whoever was late; -1 if no collective connects
  /// the rank to the first, or they contradict each other.
  std::vector<std::int64_t> bound_ns;
  /// Per rank: half of the collectives end within this of each other once aligned; -1 if none do.
  std::vector<std::int64_t> spread_ns;
  std::int64_t num_matched{0};  ///< collectives that it comes from

  [[nodiscard]] bool knows(std::size_t rank) const { return bound_ns[rank] >= 0; }
};

/// One collective on all of its members that have files.
struct MatchedCollective {
  std::string kind, group;
  std::int64_t number{0};                ///< n-th of its group, or its sequence number
  std::int64_t bytes{-1};                ///< S of the bus bandwidth; -1 if the file does not say
  std::vector<int> ranks;                ///< positions in Recording::ranks
  std::vector<std::int64_t> arrival_ns;  ///< aligned starts, in the order of `ranks`
  std::vector<std::int64_t> duration_ns;
  /// Every member of the group has a file, and none can leave before all have come. Only then is
  /// the shortest duration the time that the bytes took, and the rest of the others' durations
  /// their wait for the member of the shortest, who came last. It needs no clock.
  bool complete{false};
  std::int64_t transfer_ns{0};  ///< 0 unless `complete`
  int last_arriver{-1};         ///< position in Recording::ranks; -1 if nobody is known to wait

  /// Of the i-th of `ranks`.
  [[nodiscard]] std::int64_t wait_ns(std::size_t i) const {
    return complete ? duration_ns[i] - transfer_ns : 0;
  }
};

/// A rank's share of what all complete collectives cost.
struct RankAcross {
  std::int64_t wait_ns{0}, transfer_ns{0};
  std::int64_t num_last{0};        ///< collectives that it joined last
  std::int64_t caused_wait_ns{0};  ///< the others' wait in those
  std::int64_t compute_ns{0};
};

/// A step of the first rank, on all ranks that have one of its name.
struct StepAcross {
  std::string name;               ///< "ProfilerStep#552"
  std::vector<RankAcross> ranks;  ///< of the collectives that their first member begins in it
  int critical_rank{-1};          ///< as AcrossRanks::critical_rank
};

struct AcrossRanks {
  ClockAlignment clocks;
  std::vector<MatchedCollective> collectives;
  std::vector<RankAcross> ranks;  ///< as Recording::ranks
  /// Position of the rank that the others waited for most; where nobody waited, and all ranks can
  /// be compared, of the one that computed longest. -1 where that is not known, or several are
  /// equal.
  int critical_rank{-1};
  std::vector<StepAcross> steps;      ///< by time; empty if the first rank has none
  std::vector<std::string> warnings;  ///< missing ranks, collectives that do not match, ...
};
/// Nothing with fewer than two ranks. Collectives are numbered over the whole recording, so give
/// all of it and what is looked at as `spans`: one that is cut loses count.
[[nodiscard]] std::optional<AcrossRanks> analyse_across(const Recording& recording,
                                                        const RankSpans& spans);
[[nodiscard]] std::optional<AcrossRanks> analyse_across(const Recording& recording,
                                                        const Window& window);

}  // namespace shardmark::bench
