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
  };
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
    return meet(lane, *group_of(head.op), head.lane);
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
      const auto* await = std::get_if<Await>(&head.op);
      problems.push_back(message("rank ", rank, " lane ", name_of(head.lane), " is stuck at ",
                                 describe(head), ": waits for ",
                                 await != nullptr
                                     ? missing_signal(rank, await->fence)
                                     : missing_members(*group_of(head.op), head.lane)));
    }
    return problems;
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
      if (std::ranges::find(arrived, index(rank, lane)) == arrived.end())
        text += ' ' + std::to_string(rank);
    }
    return text;
  }

  std::size_t num_ranks_;
  std::vector<Queue> lanes_;                                   ///< index(rank, lane)
  std::vector<std::map<std::uint32_t, SignalState>> signals_;  ///< by rank, fence id
  std::map<ChannelKey, std::vector<std::size_t>> arrived_;
  std::vector<std::size_t> ready_;
};

}  // namespace

std::vector<std::string> find_deadlock(std::span<const std::vector<OpRecord>> ranks) {
  return LaneRunner{ranks}.run();
}

}  // namespace shardmark
