#include "bench/analyze/clocks.hpp"
#include "bench/analyze/match.hpp"
#include "bench/analyze/recording_parts.hpp"
#include "bench/analyze/time_text.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

namespace shardmark::bench {
namespace {

using Recorded = shardmark::Timeline;

std::string who(const Recorded& timeline) {
  return message("rank ", timeline.rank, " (", timeline.file, ")");
}

/// From the first start to the last end of device work.
std::optional<Span> span_of(const Recorded& timeline) {
  if (timeline.events.empty()) return std::nullopt;
  Span span = timeline.events.front().time;
  for (const DeviceEvent& event : timeline.events)
    span.end_ns = std::max({span.end_ns, event.time.start_ns, event.time.end_ns});
  return span;
}

/// Names of groups that hold the whole world.
std::set<std::string> world_groups(const Recorded& timeline) {
  std::set<std::string> names;
  for (const ProcessGroup& group : timeline.groups)
    if (timeline.world_size > 1 && group.size == timeline.world_size && !group.name.empty())
      names.insert(group.name);
  return names;
}

/// Why `other` is of another job than `first`; empty if it may be of the same.
std::string why_another_job(const Recorded& first, const Recorded& other) {
  if (first.world_size > 0 && other.world_size > 0 && first.world_size != other.world_size)
    return message("their worlds have ", first.world_size, " and ", other.world_size, " ranks");
  const std::set<std::string> of_first = world_groups(first), of_other = world_groups(other);
  const auto is_shared = [&](const std::string& name) { return of_first.contains(name); };
  if (!of_first.empty() && !of_other.empty() && std::ranges::none_of(of_other, is_shared))
    return message("the group of all ranks is called ", *of_first.begin(), " and ",
                   *of_other.begin());
  return {};
}

/// The time between the two; nothing if they have some in common.
std::optional<std::int64_t> apart_ns(const Recorded& first, const Recorded& other) {
  const std::optional<Span> a = span_of(first), b = span_of(other);
  if (!a || !b || (a->start_ns <= b->end_ns && b->start_ns <= a->end_ns)) return std::nullopt;
  return std::max(b->start_ns - a->end_ns, a->start_ns - b->end_ns);
}

ClockAlignment clocks_of(const Recording& recording) {
  Matches matches = match_collectives(recording);
  drop_contradictions(recording, matches);
  return align_clocks(recording, matches.all, matches.warnings);
}

std::string seconds_text(std::int64_t ns) {
  constexpr std::int64_t ns_per_s = 1'000'000'000;
  return ns < ns_per_s ? time_text(ns) : message(static_cast<double>(ns) / ns_per_s, " s");
}

}  // namespace

std::vector<std::string> different_jobs(const Recording& recording) {
  const std::vector<RankRecording>& ranks = recording.ranks;
  std::vector<std::string> sentences;
  std::optional<ClockAlignment> clocks;  // takes a while, and is hardly ever asked for
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const Recorded &first = ranks.front().timeline, &other = ranks[i].timeline;
    std::string why = why_another_job(first, other);
    if (const auto apart = apart_ns(first, other);
        why.empty() && apart && first.file != other.file) {
      if (!clocks) clocks = clocks_of(recording);
      if (!clocks->knows(i))
        why = message("one ends ", seconds_text(*apart),
                      " before the other begins, and no collectives align their clocks");
    }
    if (!why.empty())
      sentences.push_back(
          message(who(first), " and ", who(other), " seem to be of different jobs: ", why));
  }
  return sentences;
}

std::vector<std::string> different_units(const std::vector<RankRecording>& ranks) {
  std::vector<std::int64_t> lengths;
  for (const RankRecording& rank : ranks) {
    const std::optional<Span> span = span_of(rank.timeline);
    lengths.push_back(span ? span->end_ns - span->start_ns : 0);
  }
  std::vector<std::int64_t> sorted;
  std::ranges::copy_if(lengths, std::back_inserter(sorted), [](auto length) { return length > 0; });
  if (sorted.size() < 2) return {};
  std::ranges::sort(sorted);
  const auto usual = static_cast<double>(sorted[(sorted.size() - 1) / 2]);
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double ratio = static_cast<double>(lengths[i]) / usual;
    constexpr double least = 500, most = 2000;
    const bool longer = ratio > least && ratio < most;
    const bool shorter = ratio < 1 / least && ratio > 1 / most;
    if (longer || shorter)
      sentences.push_back(message(who(ranks[i].timeline), " lasts ",
                                  static_cast<double>(lengths[i]) / 1e6, " ms and most others ",
                                  usual / 1e6, " ms: its times seem to be in a ",
                                  longer ? "smaller" : "larger", " unit than the file says"));
  }
  return sentences;
}

}  // namespace shardmark::bench
