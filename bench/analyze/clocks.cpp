#include "bench/analyze/clocks.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace shardmark::bench {
namespace {

/// No limit; sums with times of the epoch do not overflow.
constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;

/// Offsets that are possible, per rank.
struct Limits {
  std::vector<std::int64_t> lowest, highest;
};

/// Members of a collective end after all have begun. An all_to_all_v may have nothing for some.
bool bounds_clocks(const Match& match) {
  return joins_all(match.kind) && match.kind != "all_to_all_v";
}

/// One round of: a collective has begun everywhere before its first end, so no member's start can
/// be later. Returns whether a limit fell. (Bellman-Ford with a node per collective: a constraint
/// for each pair of ranks would be too many.)
bool lower_highest(const std::vector<Match>& matches, std::vector<std::int64_t>& highest) {
  bool fell = false;
  for (const Match& match : matches) {
    if (!bounds_clocks(match)) continue;
    std::int64_t first_end = unlimited;
    bool is_known = false;
    for (const MemberCall& call : match.members)
      if (highest[call.rank] < unlimited) {
        const std::int64_t end = highest[call.rank] + call.time.end_ns;
        first_end = is_known ? std::min(first_end, end) : end;
        is_known = true;
      }
    if (!is_known) continue;
    for (const MemberCall& call : match.members)
      if (first_end - call.time.start_ns < highest[call.rank]) {
        highest[call.rank] = first_end - call.time.start_ns;
        fell = true;
      }
  }
  return fell;
}

/// The same for the last start, before which no member can have ended.
bool raise_lowest(const std::vector<Match>& matches, std::vector<std::int64_t>& lowest) {
  bool rose = false;
  for (const Match& match : matches) {
    if (!bounds_clocks(match)) continue;
    std::int64_t last_start = -unlimited;
    bool is_known = false;
    for (const MemberCall& call : match.members)
      if (lowest[call.rank] > -unlimited) {
        const std::int64_t start = lowest[call.rank] + call.time.start_ns;
        last_start = is_known ? std::max(last_start, start) : start;
        is_known = true;
      }
    if (!is_known) continue;
    for (const MemberCall& call : match.members)
      if (last_start - call.time.end_ns > lowest[call.rank]) {
        lowest[call.rank] = last_start - call.time.end_ns;
        rose = true;
      }
  }
  return rose;
}

/// Limits against rank `reference`; nothing if no offsets satisfy all matches.
std::optional<Limits> find_limits(const std::vector<Match>& matches, std::size_t num_ranks,
                                  std::size_t reference) {
  Limits limits{std::vector<std::int64_t>(num_ranks, -unlimited),
                std::vector<std::int64_t>(num_ranks, unlimited)};
  limits.lowest[reference] = limits.highest[reference] = 0;
  // Without a contradiction, limits are final after as many rounds as ranks.
  const auto settles = [&](const auto& round) {
    for (std::size_t i = 0; i <= num_ranks; ++i)
      if (!round()) return true;
    return false;
  };
  if (!settles([&] { return lower_highest(matches, limits.highest); }) ||
      !settles([&] { return raise_lowest(matches, limits.lowest); }) ||
      limits.highest[reference] < 0 || limits.lowest[reference] > 0)
    return std::nullopt;
  return limits;
}

/// What one recorder wrote begins with the same collectives everywhere.
bool are_of_one_file(const Recording& recording, const Match& match) {
  const auto file_of = [&](const MemberCall& call) -> const std::string& {
    return recording.ranks[call.rank].timeline.file;
  };
  return std::ranges::all_of(match.members, [&](const MemberCall& call) {
    return file_of(call) == file_of(match.members.front());
  });
}

std::int64_t median_of(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Offset at which ends agree best, and how far half of them then are apart.
struct Estimate {
  std::int64_t offset_ns{0}, spread_ns{0};
};

/// Of the ranks that collectives connect to those of `known`, from their ends there.
std::map<std::size_t, Estimate> estimate_next(const std::vector<Match>& matches,
                                              const std::map<std::size_t, Estimate>& known) {
  std::map<std::size_t, std::vector<std::int64_t>> differences;
  for (const Match& match : matches) {
    if (!bounds_clocks(match)) continue;
    const auto anchor = std::ranges::find_if(
        match.members, [&](const MemberCall& call) { return known.contains(call.rank); });
    if (anchor == match.members.end()) continue;
    const std::int64_t end = anchor->time.end_ns + known.at(anchor->rank).offset_ns;
    for (const MemberCall& call : match.members)
      if (!known.contains(call.rank)) differences[call.rank].push_back(end - call.time.end_ns);
  }
  std::map<std::size_t, Estimate> next;
  for (auto& [rank, values] : differences) {
    Estimate& estimate = next[rank];
    estimate.offset_ns = median_of(values);
    for (std::int64_t& value : values) value = std::abs(value - estimate.offset_ns);
    estimate.spread_ns = median_of(values);
  }
  return next;
}

std::map<std::size_t, Estimate> estimate_all(const std::vector<Match>& matches) {
  std::map<std::size_t, Estimate> known{{0, {}}};
  for (auto next = estimate_next(matches, known); !next.empty();
       next = estimate_next(matches, known))
    known.merge(next);
  return known;
}

}  // namespace

void drop_contradictions(const Recording& recording, Matches& matches) {
  std::vector<Match> kept;
  for (auto first = matches.all.begin(); first != matches.all.end();) {
    // Those of a group follow each other.
    const auto end = std::find_if(first, matches.all.end(), [&](const Match& match) {
      return match.group != first->group ||
             !std::ranges::equal(match.members, first->members, {}, &MemberCall::rank,
                                 &MemberCall::rank);
    });
    std::vector<Match> group(std::make_move_iterator(first), std::make_move_iterator(end));
    first = end;
    if (are_of_one_file(recording, group.front()) ||
        find_limits(group, recording.ranks.size(), group.front().members.front().rank)) {
      std::ranges::move(group, std::back_inserter(kept));
      continue;
    }
    matches.warnings.push_back(
        message("group ", group.front().group, ": no offset of clocks lets its ", group.size(),
                " collectives overlap on all ranks, so the files do not begin with the same ones, "
                "or clocks drift; they are not matched"));
  }
  matches.all = std::move(kept);
}

ClockAlignment align_clocks(const Recording& recording, const std::vector<Match>& matches,
                            std::vector<std::string>& warnings) {
  const std::size_t num_ranks = recording.ranks.size();
  ClockAlignment clocks{
      std::vector<std::int64_t>(num_ranks, 0), std::vector<std::int64_t>(num_ranks, -1),
      std::vector<std::int64_t>(num_ranks, -1), std::ranges::count_if(matches, bounds_clocks)};
  clocks.bound_ns[0] = clocks.spread_ns[0] = 0;
  const std::optional<Limits> limits = find_limits(matches, num_ranks, 0);
  if (!limits)
    warnings.emplace_back(
        "collectives contradict each other about the offsets of clocks, which drift or jump (those "
        "in a trace of ours may from row to row); offsets are where most ends agree, without a "
        "bound");
  const std::map<std::size_t, Estimate> estimates = estimate_all(matches);
  std::string unconnected;
  for (std::size_t rank = 1; rank < num_ranks; ++rank) {
    const Timeline& timeline = recording.ranks[rank].timeline;
    const bool is_of_one_file = timeline.file == recording.ranks[0].timeline.file;
    const auto estimate = estimates.find(rank);
    // Ranks of a trace of ours begin each row at a barrier, which they leave at about one time.
    if (is_of_one_file && timeline.format != "shardmark") {
      clocks.bound_ns[rank] = 0;
      if (estimate != estimates.end()) clocks.spread_ns[rank] = estimate->second.spread_ns;
      continue;
    }
    if (estimate == estimates.end()) {
      if (!is_of_one_file) unconnected += message(unconnected.empty() ? "" : ", ", timeline.rank);
      continue;
    }
    clocks.spread_ns[rank] = estimate->second.spread_ns;
    std::int64_t& offset = clocks.offset_ns[rank];
    offset = is_of_one_file ? 0 : estimate->second.offset_ns;
    if (!limits) continue;
    const std::int64_t lowest = limits->lowest[rank], highest = limits->highest[rank];
    offset = std::clamp(offset, lowest, highest);
    clocks.bound_ns[rank] = std::max(highest - offset, offset - lowest);
  }
  if (!unconnected.empty())
    warnings.push_back(message("no matched collective connects rank ", unconnected, " to rank ",
                               recording.ranks[0].timeline.rank,
                               "; their times are taken as they are"));
  return clocks;
}

}  // namespace shardmark::bench
