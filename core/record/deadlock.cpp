#include "core/record/deadlock.hpp"

#include "core/error.hpp"
#include "core/record/channel.hpp"
#include "core/record/describe.hpp"

#include <algorithm>
#include <map>

namespace shardmark {
namespace {

/// Ordering and communication ops of every lane of every rank, run without data.
class LaneRunner {
 public:
  explicit LaneRunner(std::span<const std::vector<OpRecord>> ranks)
      : num_ranks_{ranks.size()}, lanes_(ranks.size() * num_lanes), signals_(ranks.size()) {
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      for (const OpRecord& record : ranks[rank]) {
        const Group* group = group_of(record.op);
        if (kind_of(record.op) == OpKind::compute || (group != nullptr && group->size == 1))
          continue;
        lanes_[index(rank, record.lane)].ops.push_back(&record);
        if (const auto* signal = std::get_if<Signal>(&record.op))
          signals_[rank][signal->fence.id].record = &record;
      }
  }

  std::vector<std::string> run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) ready_.push_back(lane);
    while (!ready_.empty()) {
      const std::size_t lane = ready_.back();
      ready_.pop_back();
      while (lanes_[lane].head < lanes_[lane].ops.size() && advance(lane)) ++lanes_[lane].head;
    }
    return stuck();
  }

 private:
  struct Queue {
    std::vector<const OpRecord*> ops;
    std::size_t head{0};
    int num_open{0};  ///< sides of the SendRecv at the head that have met nobody yet
  };
  /// One side of a message: the channel, the members it goes from and to, and whether it is sent.
  using Side = std::tuple<ChannelKey, int, int, bool>;
  struct SignalState {
    const OpRecord* record{nullptr};
    bool reached{false};
    std::vector<std::size_t> waiting;
  };

  [[nodiscard]] static std::size_t index(std::size_t rank, Lane lane) {
    return rank * num_lanes + index_of(lane);
  }

  /// True when the head of the lane is over. Otherwise whoever completes it puts the lane back.
  bool advance(std::size_t lane) {
    const std::size_t rank = lane / num_lanes;
    const OpRecord& head = *lanes_[lane].ops[lanes_[lane].head];
    if (const auto* signal = std::get_if<Signal>(&head.op)) {
      SignalState& state = signals_[rank][signal->fence.id];
      state.reached = true;
      ready_.insert(ready_.end(), state.waiting.begin(), state.waiting.end());
      state.waiting.clear();
      return true;
    }
    if (const auto* await = std::get_if<Await>(&head.op)) {
      SignalState& state = signals_[rank][await->fence.id];
      if (!state.reached) state.waiting.push_back(lane);
      return state.reached;
    }
    if (const auto* message = std::get_if<SendRecv>(&head.op))
      return meet(lane, *message, head.lane);
    return meet(lane, *group_of(head.op), head.lane);
  }

  bool meet(std::size_t lane, const SendRecv& o, Lane name) {
    const ChannelKey channel = channel_key(o.group, name);
    const int me = o.group.position;
    lanes_[lane].num_open = (o.to >= 0 ? 1 : 0) + (o.from >= 0 ? 1 : 0);
    if (o.to >= 0) meet_side(lane, {channel, me, o.to, true});
    if (o.from >= 0) meet_side(lane, {channel, o.from, me, false});
    return lanes_[lane].num_open == 0;
  }

  void meet_side(std::size_t lane, const Side& mine) {
    Side other = mine;
    std::get<bool>(other) = !std::get<bool>(mine);
    const auto found = open_sides_.find(other);
    if (found == open_sides_.end()) {
      open_sides_[mine] = lane;
      return;
    }
    const std::size_t peer = found->second;
    open_sides_.erase(found);
    --lanes_[lane].num_open;
    if (--lanes_[peer].num_open > 0 || peer == lane) return;
    ++lanes_[peer].head;
    ready_.push_back(peer);
  }

  bool meet(std::size_t lane, const Group& group, Lane name) {
    std::vector<std::size_t>& arrived = arrived_[channel_key(group, name)];
    arrived.push_back(lane);
    if (arrived.size() < static_cast<std::size_t>(group.size)) return false;
    for (const std::size_t other : arrived) {
      if (other == lane) continue;
      ++lanes_[other].head;
      ready_.push_back(other);
    }
    arrived.clear();
    return true;
  }

  [[nodiscard]] std::vector<std::string> stuck() const {
    std::vector<std::string> problems;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const Queue& queue = lanes_[lane];
      if (queue.head == queue.ops.size()) continue;
      const std::size_t rank = lane / num_lanes;
      const OpRecord& head = *queue.ops[queue.head];
      problems.push_back(message("rank ", rank, " lane ", name_of(head.lane), " is stuck at ",
                                 describe(head), ": waits for ", missing(rank, head)));
    }
    return problems;
  }

  [[nodiscard]] std::string missing(std::size_t rank, const OpRecord& head) const {
    if (const auto* await = std::get_if<Await>(&head.op)) return missing_signal(rank, await->fence);
    if (const auto* message = std::get_if<SendRecv>(&head.op))
      return missing_sides(*message, head.lane);
    return missing_members(*group_of(head.op), head.lane);
  }

  [[nodiscard]] std::string missing_sides(const SendRecv& o, Lane lane) const {
    const ChannelKey channel = channel_key(o.group, lane);
    const int me = o.group.position;
    std::string text;
    if (open_sides_.contains({channel, me, o.to, true}))
      text = message("rank ", o.group.world_rank(o.to), " to receive");
    if (open_sides_.contains({channel, o.from, me, false}))
      text += message(text.empty() ? "" : " and ", "rank ", o.group.world_rank(o.from), " to send");
    return text + " on " + o.group.to_string();
  }

  [[nodiscard]] std::string missing_signal(std::size_t rank, Fence fence) const {
    const OpRecord* signal = signals_[rank].at(fence.id).record;
    if (signal == nullptr) return message("fence ", fence.id, ", which nobody signals");
    return message("fence ", fence.id, ", signalled by ", describe(*signal), " on lane ",
                   name_of(signal->lane));
  }

  [[nodiscard]] std::string missing_members(const Group& group, Lane lane) const {
    const std::vector<std::size_t>& arrived = arrived_.at(channel_key(group, lane));
    std::string text = message(group.to_string(), ", not reached by rank");
    for (int member = 0; member < group.size; ++member) {
      const std::size_t rank = static_cast<std::size_t>(group.world_rank(member));
      const auto is_its_lane = [&](std::size_t other) { return other / num_lanes == rank; };
      if (std::ranges::none_of(arrived, is_its_lane)) text += ' ' + std::to_string(rank);
    }
    return text;
  }

  std::size_t num_ranks_;
  std::vector<Queue> lanes_;                                   ///< index(rank, lane)
  std::vector<std::map<std::uint32_t, SignalState>> signals_;  ///< by rank, fence id
  std::map<ChannelKey, std::vector<std::size_t>> arrived_;
  std::map<Side, std::size_t> open_sides_;  ///< the lane that waits with it
  std::vector<std::size_t> ready_;
};

}  // namespace

std::vector<std::string> find_deadlock(std::span<const std::vector<OpRecord>> ranks) {
  return LaneRunner{ranks}.run();
}

}  // namespace shardmark
