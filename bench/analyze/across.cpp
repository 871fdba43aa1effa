#include "bench/analyze/across.hpp"

#include "bench/analyze/clocks.hpp"
#include "bench/analyze/match.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace shardmark::bench {
namespace {

MatchedCollective make_collective(Match match, const ClockAlignment& clocks) {
  MatchedCollective made;
  made.kind = std::move(match.kind);
  made.group = std::move(match.group);
  made.number = match.number;
  made.bytes = match.bytes;
  for (const MemberCall& call : match.members) {
    made.ranks.push_back(static_cast<int>(call.rank));
    made.arrival_ns.push_back(call.time.start_ns + clocks.offset_ns[call.rank]);
    made.duration_ns.push_back(call.time.end_ns - call.time.start_ns);
  }
  made.complete = match.has_all_members && joins_all(made.kind);
  if (!made.complete) return made;
  std::size_t last = 0;
  for (std::size_t i = 1; i < made.ranks.size(); ++i)
    if (std::pair{made.duration_ns[i], -made.arrival_ns[i]} <
        std::pair{made.duration_ns[last], -made.arrival_ns[last]})
      last = i;
  made.transfer_ns = made.duration_ns[last];
  if (std::ranges::max(made.duration_ns) > made.transfer_ns) made.last_arriver = made.ranks[last];
  return made;
}

/// What the others waited for the last one.
std::int64_t caused_wait_ns(const MatchedCollective& collective) {
  std::int64_t sum_ns = 0;
  for (std::size_t i = 0; i < collective.ranks.size(); ++i) sum_ns += collective.wait_ns(i);
  return sum_ns;
}

void add_shares(const MatchedCollective& collective, std::vector<RankAcross>& ranks) {
  if (!collective.complete) return;
  for (std::size_t i = 0; i < collective.ranks.size(); ++i) {
    RankAcross& rank = ranks[static_cast<std::size_t>(collective.ranks[i])];
    rank.wait_ns += collective.wait_ns(i);
    rank.transfer_ns += collective.transfer_ns;
  }
  if (collective.last_arriver < 0) return;
  RankAcross& last = ranks[static_cast<std::size_t>(collective.last_arriver)];
  ++last.num_last;
  last.caused_wait_ns += caused_wait_ns(collective);
}

/// A step on every rank, on its clock; nothing on ranks without it.
struct Step {
  std::string name;
  std::vector<std::optional<Span>> spans;
};

bool lies_in(const Span& time, const std::optional<std::vector<Span>>& spans) {
  return !spans || !intersected(*spans, std::vector<Span>{time}).empty();
}

/// The first rank's steps that lie in its spans, also in part; on other ranks by name.
std::vector<Step> steps_of(const Recording& recording, const RankSpans& spans) {
  std::vector<Step> steps;
  std::map<std::string, std::size_t> places;
  for (std::size_t rank = 0; rank < recording.ranks.size(); ++rank) {
    const Timeline& timeline = recording.ranks[rank].timeline;
    for (const HostRange& range : timeline.steps) {
      if (range.name >= timeline.names.size()) continue;
      const std::string& name = timeline.names[range.name];
      if (rank == 0 && lies_in(range.time, spans[0]) &&
          places.try_emplace(name, steps.size()).second)
        steps.push_back({name, std::vector<std::optional<Span>>(recording.ranks.size())});
      const auto place = places.find(name);
      if (place != places.end() && !steps[place->second].spans[rank])
        steps[place->second].spans[rank] = range.time;
    }
  }
  return steps;
}

/// The one whose value is the largest; -1 if that is 0, or several have it.
int largest_of(const std::vector<RankAcross>& ranks, std::int64_t RankAcross::*member) {
  const auto largest = std::ranges::max_element(ranks, {}, member);
  const std::int64_t value = (*largest).*member;
  if (value <= 0 || std::ranges::count(ranks, value, member) > 1) return -1;
  return static_cast<int>(largest - ranks.begin());
}

/// `can_compare`: all ranks that do anything have a compute time.
int most_critical(const std::vector<RankAcross>& ranks, bool can_compare) {
  const bool somebody_waits =
      std::ranges::any_of(ranks, [](const RankAcross& rank) { return rank.caused_wait_ns > 0; });
  if (somebody_waits) return largest_of(ranks, &RankAcross::caused_wait_ns);
  return can_compare ? largest_of(ranks, &RankAcross::compute_ns) : -1;
}

/// All ranks with device work have as many steps: their compute times are of the same work.
bool have_equal_steps(const Recording& recording) {
  std::optional<std::size_t> num_steps;
  for (const RankRecording& rank : recording.ranks) {
    const Timeline& timeline = rank.timeline;
    if (timeline.events.empty()) continue;
    if (num_steps.value_or(timeline.steps.size()) != timeline.steps.size()) return false;
    num_steps = timeline.steps.size();
  }
  return true;
}

/// What the ranks cost each other in each step.
class StepShares {
 public:
  /// `compute`: of each rank, within its spans.
  StepShares(const Recording& recording, const RankSpans& spans,
             const std::vector<std::vector<Span>>& compute)
      : recording_{recording}, compute_{compute}, steps_{steps_of(recording, spans)} {
    places_.resize(recording.ranks.size());
    for (std::size_t i = 0; i < steps_.size(); ++i)
      for (std::size_t rank = 0; rank < places_.size(); ++rank)
        if (const std::optional<Span>& span = steps_[i].spans[rank])
          places_[rank].emplace(span->start_ns, i);
  }

  [[nodiscard]] std::vector<StepAcross> of(const AcrossRanks& across) const {
    std::vector<StepAcross> result;
    for (const Step& step : steps_) {
      result.push_back({step.name, std::vector<RankAcross>(recording_.ranks.size())});
      for (std::size_t rank = 0; rank < step.spans.size(); ++rank)
        if (step.spans[rank])
          result.back().ranks[rank].compute_ns =
              length_ns(intersected(compute_[rank], std::vector<Span>{*step.spans[rank]}));
    }
    for (const MatchedCollective& collective : across.collectives)
      if (const std::optional<std::size_t> step = step_of(collective, across.clocks))
        add_shares(collective, result[*step].ranks);
    for (std::size_t i = 0; i < steps_.size(); ++i)
      result[i].critical_rank = most_critical(result[i].ranks, is_on_all(steps_[i]));
    return result;
  }

 private:
  /// The step in which the first member begins the collective.
  [[nodiscard]] std::optional<std::size_t> step_of(const MatchedCollective& collective,
                                                   const ClockAlignment& clocks) const {
    const auto rank = static_cast<std::size_t>(collective.ranks.front());
    const std::int64_t start_ns = collective.arrival_ns.front() - clocks.offset_ns[rank];
    const auto next = places_[rank].upper_bound(start_ns);
    if (next == places_[rank].begin()) return std::nullopt;
    const std::size_t place = std::prev(next)->second;
    if (start_ns >= steps_[place].spans[rank]->end_ns) return std::nullopt;
    return place;
  }

  /// All ranks with device work have the step.
  [[nodiscard]] bool is_on_all(const Step& step) const {
    for (std::size_t rank = 0; rank < step.spans.size(); ++rank)
      if (!step.spans[rank] && !recording_.ranks[rank].timeline.events.empty()) return false;
    return true;
  }

  const Recording& recording_;
  const std::vector<std::vector<Span>>& compute_;
  std::vector<Step> steps_;
  std::vector<std::map<std::int64_t, std::size_t>> places_;  ///< by rank: start -> place of a step
};

}  // namespace

std::optional<AcrossRanks> analyse_across(const Recording& recording, const RankSpans& spans) {
  if (recording.ranks.size() < 2) return std::nullopt;
  AcrossRanks across;
  Matches matches = match_collectives(recording);
  drop_contradictions(recording, matches);
  across.warnings = std::move(matches.warnings);
  across.clocks = align_clocks(recording, matches.all, across.warnings);
  across.ranks.resize(recording.ranks.size());
  std::vector<std::vector<Span>> compute;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    compute.push_back(busy_spans(recording.ranks[i], WorkClass::compute));
    if (spans[i]) compute.back() = intersected(compute.back(), *spans[i]);
    across.ranks[i].compute_ns = length_ns(compute.back());
  }
  for (Match& match : matches.all) {
    const MemberCall& first = match.members.front();
    if (!contains(spans[first.rank], first.time.start_ns)) continue;
    across.collectives.push_back(make_collective(std::move(match), across.clocks));
    add_shares(across.collectives.back(), across.ranks);
  }
  across.critical_rank = most_critical(across.ranks, have_equal_steps(recording));
  across.steps = StepShares{recording, spans, compute}.of(across);
  return across;
}

std::optional<AcrossRanks> analyse_across(const Recording& recording, const Window& window) {
  return analyse_across(recording, spans_on(recording, window));
}

}  // namespace shardmark::bench
