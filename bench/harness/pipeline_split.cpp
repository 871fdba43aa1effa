// PipelineAnalysis::split: which part of the window every instant of a rank belongs to. And what
// was in flight meanwhile.

#include "bench/harness/pipeline_times.hpp"
#include "core/error.hpp"
#include "core/record/channel.hpp"
#include "profiler/analyse.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace shardmark::bench {
namespace {

using pipeline::Act;
using pipeline::Action;

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// What a rank is at, the first of those that hold.
enum class Part : std::uint8_t { compute, collective, transfer, gap, wait, blocked };
constexpr std::size_t num_parts = 6;

/// From when its lane reached an op to its end; a long op has several kernels.
struct OpSpan {
  std::int64_t start_ns{0}, end_ns{0};
  bool exists{false};
  void include(const KernelRecord& record) {
    start_ns = exists ? std::min(start_ns, record.start_ns) : record.start_ns;
    end_ns = exists ? std::max(end_ns, record.end_ns) : record.end_ns;
    exists = true;
  }
};

std::vector<OpSpan> spans_of(std::size_t num_ops, const std::vector<KernelRecord>& records) {
  std::vector<OpSpan> spans(num_ops);
  for (const KernelRecord& record : records) spans.at(record.op_seq).include(record);
  return spans;
}

/// Intervals of one rank and how long which part holds.
class Intervals {
 public:
  void add(Part part, std::int64_t start_ns, std::int64_t end_ns) {
    if (end_ns <= start_ns) return;
    changes_.push_back({start_ns, part, 1});
    changes_.push_back({end_ns, part, -1});
  }

  struct Lengths {
    std::array<std::int64_t, num_parts> first_ns{};  ///< where it is the first that holds
    std::int64_t transfer_ns{0};                     ///< where it holds at all
    std::int64_t operator[](Part part) const { return first_ns[static_cast<std::size_t>(part)]; }
  };
  [[nodiscard]] Lengths lengths() {
    std::ranges::sort(changes_, {}, &Change::at_ns);
    Lengths lengths;
    std::array<int, num_parts> open{};
    std::int64_t now_ns = 0;
    for (const Change& change : changes_) {
      const auto first = std::ranges::find_if(open, [](int count) { return count > 0; });
      const std::int64_t passed_ns = change.at_ns - now_ns;
      // A gap counts where something is open; otherwise it is idle.
      const bool in_gap_alone = first - open.begin() == index(Part::gap) &&
                                open[index(Part::wait)] + open[index(Part::blocked)] == 0;
      if (first != open.end() && !in_gap_alone)
        lengths.first_ns[static_cast<std::size_t>(first - open.begin())] += passed_ns;
      if (open[index(Part::transfer)] > 0) lengths.transfer_ns += passed_ns;
      now_ns = change.at_ns;
      open[index(change.part)] += change.more;
    }
    return lengths;
  }

 private:
  struct Change {
    std::int64_t at_ns;
    Part part;
    int more;
  };
  static constexpr std::ptrdiff_t index(Part part) { return static_cast<std::ptrdiff_t>(part); }
  std::vector<Change> changes_;
};

bool is_message(const OpRecord& record) {
  const auto* message = std::get_if<SendRecv>(&record.op);
  return message != nullptr && message->group.axis == Axis::pp;
}

double& time_of(PipelineSplit& split, const std::optional<Action>& action) {
  if (!action) return split.other_us;
  switch (action->act) {
    case Act::F:
      return split.forward_us;
    case Act::B:
      return split.backward_us;
    case Act::I:
      return split.input_us;
    case Act::W:
      return split.weight_us;
    default:
      return split.other_us;
  }
}

/// How many of the spans hold at one time, at most. One that begins when another ends is not beside
/// it.
int most_at_once(const std::map<std::pair<int, int>, OpSpan>& spans) {
  std::vector<std::pair<std::int64_t, int>> changes;
  for (const auto& [name, span] : spans) {
    changes.emplace_back(span.start_ns, 1);
    changes.emplace_back(span.end_ns, -1);
  }
  std::ranges::sort(changes);
  int now = 0, most = 0;
  for (const auto& [at_ns, more] : changes) most = std::max(most, now += more);
  return most;
}

/// When the other ends of an op's messages had come.
struct Arrivals {
  std::int64_t sender_ns{0}, receiver_ns{0};
};

/// One rank's part of PipelineAnalysis::split. Differences are of nanoseconds, so that what is zero
/// is exactly zero.
PipelineSplit split_rank(const std::vector<OpRecord>& list,
                         const std::vector<std::optional<Action>>& actions,
                         const std::vector<Arrivals>& arrivals, const RankIteration& rank,
                         const Span& window) {
  const std::int64_t window_ns = window.end_ns - window.start_ns;
  PipelineSplit split{.window_us = to_us(window_ns)};
  std::int64_t compute_ns = 0;
  Intervals intervals;
  std::map<Action, OpSpan> spans;  // of the actions
  Span used{window.end_ns, window.start_ns};
  for (const KernelRecord& record : rank.records) {
    used = {std::min(used.start_ns, record.start_ns), std::max(used.end_ns, record.end_ns)};
    if (is_message(list[record.op_seq])) {
      const Arrivals& came = arrivals[record.op_seq];
      const std::int64_t in_ns = std::clamp(came.sender_ns, record.start_ns, record.end_ns);
      const std::int64_t out_ns = std::clamp(came.receiver_ns, record.start_ns, record.end_ns);
      intervals.add(Part::wait, record.start_ns, in_ns);
      intervals.add(Part::blocked, record.start_ns, out_ns);
      intervals.add(Part::transfer, std::max(in_ns, out_ns), record.end_ns);
      continue;
    }
    const bool computes = record.kind == OpKind::compute;
    intervals.add(computes ? Part::compute : Part::collective, record.start_ns, record.end_ns);
    const std::optional<Action>& action = actions[record.op_seq];
    if (computes) {
      time_of(split, action) += to_us(record.end_ns - record.start_ns);
      compute_ns += record.end_ns - record.start_ns;
    }
    if (action) spans[*action].include(record);
  }
  for (const auto& [action, span] : spans) intervals.add(Part::gap, span.start_ns, span.end_ns);
  const Intervals::Lengths lengths = intervals.lengths();
  const std::int64_t idle_ns =
      rank.idle_ns + (rank.begin_ns - window.start_ns) + (window.end_ns - rank.end_ns);
  const std::int64_t start_ns = used.start_ns - window.start_ns;
  const std::int64_t drain_ns = window.end_ns - used.end_ns;
  const std::int64_t bubble_ns =
      window_ns - compute_ns - lengths[Part::collective] - lengths[Part::transfer];
  const std::int64_t waiting_ns = lengths[Part::wait] + lengths[Part::blocked];
  split.collective_us = to_us(lengths[Part::collective]);
  split.transfer_us = to_us(lengths.transfer_ns);
  split.exposed_transfer_us = to_us(lengths[Part::transfer]);
  split.gap_us = to_us(lengths[Part::gap]);
  split.wait_us = to_us(lengths[Part::wait]);
  split.blocked_us = to_us(lengths[Part::blocked]);
  split.idle_us = to_us(idle_ns);
  split.start_us = to_us(start_ns);
  split.drain_us = to_us(drain_ns);
  split.bubble_us = to_us(bubble_ns);
  split.residual_us = to_us(bubble_ns - waiting_ns - lengths[Part::gap] - idle_ns);
  split.unexplained_us = to_us(bubble_ns - waiting_ns - start_ns - drain_ns);
  return split;
}

}  // namespace

/// Messages between two members on one lane arrive in the order in which they were sent.
void PipelineAnalysis::match_messages() {
  using Place = std::pair<std::size_t, std::size_t>;
  struct Ends {
    std::vector<Place> sends, receives;
  };
  std::map<std::tuple<ChannelKey, int, int>, Ends> ends;
  for (std::size_t rank = 0; rank < lists_.size(); ++rank)
    for (std::size_t i = 0; i < lists_[rank].size(); ++i) {
      const OpRecord& record = lists_[rank][i];
      if (!is_message(record)) continue;
      const auto& op = std::get<SendRecv>(record.op);
      const ChannelKey channel = channel_key(op.group, record.lane);
      if (op.to >= 0) ends[{channel, op.group.position, op.to}].sends.emplace_back(rank, i);
      if (op.from >= 0) ends[{channel, op.from, op.group.position}].receives.emplace_back(rank, i);
    }
  for (const auto& [name, both] : ends) {
    SHARDMARK_CHECK(both.sends.size() == both.receives.size(), both.sends.size(), " sends and ",
                    both.receives.size(), " receives from member ", std::get<1>(name), " to ",
                    std::get<2>(name), " of a group");
    for (std::size_t i = 0; i < both.sends.size(); ++i)
      messages_.push_back({both.sends[i].first, both.sends[i].second, both.receives[i].first,
                           both.receives[i].second});
  }
}

std::vector<std::vector<std::int64_t>> PipelineAnalysis::message_times_ns(
    std::span<const RankIteration> ranks) const {
  std::vector<std::vector<OpSpan>> spans;
  std::vector<std::vector<std::int64_t>> times_ns;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    spans.push_back(spans_of(lists_[rank].size(), ranks[rank].records));
    times_ns.emplace_back(lists_[rank].size(), -1);
  }
  for (const Message& m : messages_) {
    const OpSpan& send = spans[m.sender][m.send_op];
    const OpSpan& receive = spans[m.receiver][m.receive_op];
    const std::int64_t time_ns =
        std::min(send.end_ns, receive.end_ns) - std::max(send.start_ns, receive.start_ns);
    times_ns[m.sender][m.send_op] = std::max<std::int64_t>(time_ns, 0);  // buffered: over before
  }
  return times_ns;
}

std::vector<PipelineSplit> PipelineAnalysis::split(std::span<const RankIteration> ranks) const {
  SHARDMARK_CHECK(ranks.size() == lists_.size(), ranks.size(), " ranks, op lists of ",
                  lists_.size());
  std::vector<std::vector<OpSpan>> spans;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    spans.push_back(spans_of(lists_[rank].size(), ranks[rank].records));
  std::vector<std::vector<Arrivals>> arrivals;
  for (const auto& own : spans) arrivals.emplace_back(own.size());
  for (const Message& m : messages_) {
    arrivals[m.receiver][m.receive_op].sender_ns = spans[m.sender][m.send_op].start_ns;
    arrivals[m.sender][m.send_op].receiver_ns = spans[m.receiver][m.receive_op].start_ns;
  }
  const Span window{std::ranges::min(ranks, {}, &RankIteration::begin_ns).begin_ns,
                    std::ranges::max(ranks, {}, &RankIteration::end_ns).end_ns};
  std::vector<PipelineSplit> splits;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    splits.push_back(split_rank(lists_[rank], actions_[rank], arrivals[rank], ranks[rank], window));
  return splits;
}

std::vector<int> PipelineAnalysis::most_in_flight(std::span<const RankIteration> ranks) const {
  std::vector<int> most;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::map<std::pair<int, int>, OpSpan> spans;  // of a micro-batch in a stage
    for (const KernelRecord& record : ranks[rank].records)
      if (const auto& action = actions_[rank][record.op_seq];
          action && record.kind == OpKind::compute)
        spans[{action->stage, action->micro}].include(record);
    most.push_back(most_at_once(spans));
  }
  return most;
}

}  // namespace shardmark::bench
