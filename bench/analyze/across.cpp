#include "bench/analyze/across.hpp"

#include "bench/analyze/clocks.hpp"
#include "bench/analyze/match.hpp"
#include "core/error.hpp"

#include <algorithm>
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

double imbalance_of(const std::vector<RankAcross>& ranks) {
  const auto [fastest, slowest] = std::ranges::minmax_element(ranks, {}, &RankAcross::compute_ns);
  if (fastest->compute_ns <= 0) return 0;
  return static_cast<double>(slowest->compute_ns) / static_cast<double>(fastest->compute_ns);
}

/// A step on every rank, on its clock; nothing on ranks without it.
struct Step {
  std::string name;
  std::vector<std::optional<Span>> spans;
};

/// The first rank's steps that begin in its spans; on other ranks by name.
std::vector<Step> steps_of(const Recording& recording, const RankSpans& spans) {
  std::vector<Step> steps;
  std::map<std::string, std::size_t> places;
  for (std::size_t rank = 0; rank < recording.ranks.size(); ++rank) {
    const Timeline& timeline = recording.ranks[rank].timeline;
    for (const HostRange& range : timeline.steps) {
      if (range.name >= timeline.names.size()) continue;
      const std::string& name = timeline.names[range.name];
      if (rank == 0 && contains(spans[0], range.time.start_ns) &&
          places.try_emplace(name, steps.size()).second)
        steps.push_back({name, std::vector<std::optional<Span>>(recording.ranks.size())});
      const auto place = places.find(name);
      if (place != places.end() && !steps[place->second].spans[rank])
        steps[place->second].spans[rank] = range.time;
    }
  }
  return steps;
}

/// The rank that caused the most wait, else the one with the most compute; -1 if there is neither.
int most_critical(const std::vector<std::int64_t>& caused_ns,
                  const std::vector<std::int64_t>& compute_ns) {
  for (const auto& values : {caused_ns, compute_ns}) {
    const auto most = std::ranges::max_element(values);
    if (*most > 0) return static_cast<int>(most - values.begin());
  }
  return -1;
}

class Critical {
 public:
  Critical(const Recording& recording, const RankSpans& spans, AcrossRanks& across)
      : recording_{recording}, across_{across}, steps_{steps_of(recording, spans)} {}

  void find() {
    const std::size_t num_ranks = recording_.ranks.size();
    if (steps_.empty()) {
      std::vector<std::int64_t> caused, compute;
      for (const RankAcross& rank : across_.ranks) {
        caused.push_back(rank.caused_wait_ns);
        compute.push_back(rank.compute_ns);
      }
      across_.step.emplace_back("trace");
      across_.critical_rank.push_back(most_critical(caused, compute));
      return;
    }
    std::vector<std::vector<std::int64_t>> caused(steps_.size(),
                                                  std::vector<std::int64_t>(num_ranks, 0));
    for (const MatchedCollective& collective : across_.collectives)
      if (const std::optional<std::size_t> step = step_of(collective))
        caused[*step][static_cast<std::size_t>(collective.last_arriver)] +=
            caused_wait_ns(collective);
    std::vector<std::vector<Span>> busy;
    for (const RankRecording& rank : recording_.ranks)
      busy.push_back(busy_spans(rank, WorkClass::compute));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      std::vector<std::int64_t> compute;
      for (std::size_t rank = 0; rank < num_ranks; ++rank)
        compute.push_back(compute_in(busy[rank], steps_[i].spans[rank]));
      across_.step.push_back(steps_[i].name);
      across_.critical_rank.push_back(most_critical(caused[i], compute));
    }
  }

 private:
  /// Of a collective that somebody waited in: the step in which its first member begins it.
  [[nodiscard]] std::optional<std::size_t> step_of(const MatchedCollective& collective) const {
    if (collective.last_arriver < 0) return std::nullopt;
    const auto rank = static_cast<std::size_t>(collective.ranks.front());
    const std::int64_t start_ns = collective.arrival_ns.front() - across_.clocks.offset_ns[rank];
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const std::optional<Span>& span = steps_[i].spans[rank];
      if (span && span->start_ns <= start_ns && start_ns < span->end_ns) return i;
    }
    return std::nullopt;
  }

  static std::int64_t compute_in(const std::vector<Span>& busy, const std::optional<Span>& span) {
    return span ? length_ns(intersected(busy, std::vector<Span>{*span})) : 0;
  }

  const Recording& recording_;
  AcrossRanks& across_;
  std::vector<Step> steps_;
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
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const std::vector<Span> busy = busy_spans(recording.ranks[i], WorkClass::compute);
    across.ranks[i].compute_ns = length_ns(spans[i] ? intersected(busy, *spans[i]) : busy);
  }
  for (Match& match : matches.all) {
    const MemberCall& first = match.members.front();
    if (!contains(spans[first.rank], first.time.start_ns)) continue;
    across.collectives.push_back(make_collective(std::move(match), across.clocks));
    add_shares(across.collectives.back(), across.ranks);
  }
  across.imbalance = imbalance_of(across.ranks);
  Critical{recording, spans, across}.find();
  return across;
}

std::optional<AcrossRanks> analyse_across(const Recording& recording, const Window& window) {
  return analyse_across(recording, spans_on(recording, window));
}

}  // namespace shardmark::bench
