#pragma once

#include "bench/analyze/collectives.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// A collective as one rank's file has it.
struct MemberCall {
  std::size_t rank{0};  ///< position in Recording::ranks
  Span time;            ///< on its own clock
};
/// The same collective on all members of its group that have files and used the group, two or more.
struct Match {
  std::string kind, group;
  /// Sequence number, if the files have them and each once, else n-th of its group.
  std::int64_t number{0};
  std::int64_t bytes{-1};
  std::vector<MemberCall> members;  ///< by rank
  bool has_all_members{false};      ///< every member of the group is among them
};

struct Matches {
  std::vector<Match> all;
  std::vector<std::string> warnings;  ///< what could not be matched, and why
};
/// Groups are the same where ranks and name agree; where a set of ranks has one group only, its
/// name does not matter, for frameworks number groups per rank. A group whose ranks no file gives
/// goes by its name. Sends and receives are not matched.
[[nodiscard]] Matches match_collectives(const Recording& recording);

}  // namespace shardmark::bench
