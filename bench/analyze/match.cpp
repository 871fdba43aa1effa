#include "bench/analyze/match.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace shardmark::bench {
namespace {

/// Calls of one rank with one group, in order.
struct GroupCalls {
  std::vector<Communication> calls;
  int size{0};  ///< of the group; 0 if the file does not say
};
using ByRank = std::map<std::size_t, GroupCalls>;
/// Ranks of the group -> its name -> rank that uses it.
using ByGroup = std::map<std::vector<int>, std::map<std::string, ByRank>>;

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t num_shown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), num_shown); ++i)
    text += message(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > num_shown ? message(text, ", ... ", ranks.back()) : text;
}

/// Collectives by group; `unnamed` gets, per rank, those of which no group is known.
ByGroup group_calls(const Recording& recording, std::vector<std::vector<Communication>>& unnamed) {
  ByGroup groups;
  for (std::size_t position = 0; position < recording.ranks.size(); ++position) {
    const Timeline& timeline = recording.ranks[position].timeline;
    std::vector<Communication>& without = unnamed.emplace_back();
    std::map<std::uint32_t, GroupCalls*> of_group;
    for (Communication& call : communications_of(recording.ranks[position])) {
      if (is_message(call.kind)) continue;
      if (call.group == no_index) {
        without.push_back(std::move(call));
        continue;
      }
      GroupCalls*& calls = of_group[call.group];
      if (calls == nullptr) {
        const ProcessGroup& group = timeline.groups[call.group];
        std::vector<int> ranks = group.ranks;
        std::ranges::sort(ranks);
        const std::string name = group.name.empty() ? group.description : group.name;
        calls = &groups[std::move(ranks)][name][position];
        calls->size = size_of(group);
      }
      calls->calls.push_back(std::move(call));
    }
  }
  return groups;
}

/// Where a set of ranks has one name per rank, and they differ, all are the same group.
void unite_names(std::map<std::string, ByRank>& names) {
  std::set<std::size_t> seen;
  for (const auto& [name, by_rank] : names)
    for (const auto& [rank, calls] : by_rank)
      if (!seen.insert(rank).second) return;
  while (names.size() > 1)
    names.begin()->second.merge(names.extract(std::next(names.begin())).mapped());
}

class Matcher {
 public:
  Matcher(const Recording& recording, Matches& matches)
      : recording_{recording}, matches_{matches} {}

  /// `ranks`: all members, or empty if no file says.
  void match(const std::vector<int>& ranks, const std::string& name, ByRank& by_rank) {
    label_ = label_of({name, {}, ranks, 0});
    const int size = by_rank.begin()->second.size;
    if (size == 1 || ranks.size() == 1) return;
    const bool has_all = have_all(ranks, size, by_rank);
    if (!has_all && num_without_members_++ == 0)
      first_without_members_ = who_misses(ranks, size, by_rank);
    if (by_rank.size() < 2) return;
    if (are_numbered(by_rank))
      match_numbers(by_rank, has_all);
    else
      match_order(by_rank, has_all);
  }

  void warn_of_missing_members() {
    if (num_without_members_ == 0) return;
    warn(message(first_without_members_,
                 num_without_members_ > 1
                     ? message(" (and so of ", num_without_members_ - 1, " further groups)")
                     : std::string{},
                 "; transfer and wait of its collectives are not known"));
  }

  void warn(const std::string& sentence) { matches_.warnings.push_back(sentence); }

 private:
  [[nodiscard]] int number_of(std::size_t position) const {
    return recording_.ranks[position].timeline.rank;
  }

  [[nodiscard]] bool have_all(const std::vector<int>& ranks, int size,
                              const ByRank& by_rank) const {
    if (ranks.empty()) return size > 0 && static_cast<std::size_t>(size) == by_rank.size();
    std::set<int> there;
    for (const auto& [position, calls] : by_rank) there.insert(number_of(position));
    return std::ranges::includes(there, ranks);
  }

  [[nodiscard]] std::string who_misses(const std::vector<int>& ranks, int size,
                                       const ByRank& by_rank) const {
    std::vector<int> missing;
    for (const int rank : ranks)
      if (std::ranges::none_of(by_rank,
                               [&](const auto& entry) { return number_of(entry.first) == rank; }))
        missing.push_back(rank);
    const std::string of_group = message("of group ", label_, ' ');
    if (!missing.empty())
      return message(of_group, missing.size() == 1 ? "rank " : "ranks ", ranks_text(missing),
                     missing.size() == 1 ? " has" : " have", " no file, or no call in it");
    if (size > 0)
      return message(of_group, "only ", by_rank.size(), " of ", size, " members have files");
    return message(of_group, "no file gives the members");
  }

  /// All of them, and no number comes again, as it does where a CUDA graph is replayed.
  static bool are_numbered(const ByRank& by_rank) {
    for (const auto& [rank, group] : by_rank) {
      std::set<std::int64_t> numbers;
      for (const Communication& call : group.calls)
        if (call.sequence < 0 || !numbers.insert(call.sequence).second) return false;
    }
    return true;
  }

  /// One collective from the calls of all ranks; nothing, with a warning, where they differ.
  bool add(std::int64_t number, const std::vector<std::pair<std::size_t, Communication>>& calls,
           bool has_all, const char* consequence) {
    const Communication& first = calls.front().second;
    Match match{first.kind, label_, number, first.bytes, {}, has_all};
    for (const auto& [rank, call] : calls) {
      const bool sizes_agree = call.kind == "all_to_all_v" || match.bytes < 0 || call.bytes < 0 ||
                               call.bytes == match.bytes;
      if (call.kind != match.kind || !sizes_agree) {
        const auto describe = [](const Communication& c) {
          return c.bytes < 0 ? c.kind : message(c.kind, " of ", c.bytes, " bytes");
        };
        warn(message("group ", label_, ", collective ", number, ": rank ",
                     number_of(calls.front().first), " has ", describe(first), ", rank ",
                     number_of(rank), " ", describe(call), "; ", consequence));
        return false;
      }
      match.members.push_back({rank, call.time});
    }
    matches_.all.push_back(std::move(match));
    return true;
  }

  void match_order(const ByRank& by_rank, bool has_all) {
    std::size_t least = by_rank.begin()->second.calls.size(), most = least;
    for (const auto& [rank, group] : by_rank) {
      least = std::min(least, group.calls.size());
      most = std::max(most, group.calls.size());
    }
    if (least < most)
      warn(message("group ", label_, ": ranks have ", least, " to ", most,
                   " collectives without sequence numbers; they are matched from the first on"));
    for (std::size_t i = 0; i < least; ++i) {
      std::vector<std::pair<std::size_t, Communication>> calls;
      for (const auto& [rank, group] : by_rank) calls.emplace_back(rank, group.calls[i]);
      if (!add(static_cast<std::int64_t>(i), calls, has_all,
               "from there on the group is not matched"))
        return;
    }
  }

  void match_numbers(const ByRank& by_rank, bool has_all) {
    std::map<std::int64_t, std::map<std::size_t, Communication>> numbers;
    for (const auto& [rank, group] : by_rank)
      for (const Communication& call : group.calls) numbers[call.sequence].emplace(rank, call);
    std::int64_t num_partial = 0;
    bool was_warned = false;
    for (const auto& [number, of_rank] : numbers) {
      if (of_rank.size() < by_rank.size()) {
        ++num_partial;
        continue;
      }
      const std::size_t num_warnings = matches_.warnings.size();
      if (!add(number, {of_rank.begin(), of_rank.end()}, has_all, "it is not matched") &&
          std::exchange(was_warned, true))
        matches_.warnings.resize(num_warnings);  // the first of a group is enough
    }
    if (num_partial > 0)
      warn(message("group ", label_, ": ", num_partial, " of ", numbers.size(),
                   " collectives are not in the files of all members that have one"));
  }

  const Recording& recording_;
  Matches& matches_;
  std::string label_;
  std::int64_t num_without_members_{0};
  std::string first_without_members_;
};

/// Two ranks in all: a collective can only join both, if they have the same ones in the same order.
bool are_of_both(const Recording& recording,
                 const std::vector<std::vector<Communication>>& unnamed) {
  if (recording.ranks.size() != 2 || recording.world_size != 2) return false;
  if (std::ranges::none_of(recording.ranks,
                           [](const RankRecording& rank) { return rank.timeline.world_size == 2; }))
    return false;
  return std::ranges::equal(unnamed[0], unnamed[1], {}, &Communication::kind, &Communication::kind);
}

}  // namespace

Matches match_collectives(const Recording& recording) {
  Matches matches;
  Matcher matcher{recording, matches};
  std::vector<std::vector<Communication>> unnamed;
  ByGroup groups = group_calls(recording, unnamed);
  for (auto& [ranks, names] : groups) {
    if (!ranks.empty()) unite_names(names);
    for (auto& [name, by_rank] : names) matcher.match(ranks, name, by_rank);
  }
  matcher.warn_of_missing_members();
  std::size_t num_unnamed = 0;
  for (const auto& calls : unnamed) num_unnamed += calls.size();
  if (num_unnamed == 0) return matches;
  if (are_of_both(recording, unnamed)) {
    matcher.warn("the files name no groups; the world has two ranks, so collectives join both");
    ByRank both;
    for (std::size_t rank = 0; rank < 2; ++rank) both[rank] = {unnamed[rank], 2};
    matcher.match({}, {}, both);
  } else {
    matcher.warn(
        message(num_unnamed, " collectives of which the files name no group are not matched"));
  }
  return matches;
}

}  // namespace shardmark::bench
