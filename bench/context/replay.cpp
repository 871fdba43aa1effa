#include "bench/context/replay.hpp"

#include "core/error.hpp"
#include "core/record/channel.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace shardmark::bench::context {
namespace {

/// The lanes of all ranks with their clocks.
class Replay {
 public:
  Replay(std::span<const std::vector<OpRecord>> ranks, const MachineRates& rates)
      : rates_{rates},
        lanes_(ranks.size() * num_lanes),
        signals_(ranks.size()),
        compute_us_(ranks.size()),
        exchange_us_(ranks.size()) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (const OpRecord& record : ranks[rank])
        lanes_[rank * num_lanes + index_of(record.lane)].ops.push_back(&record);
  }

  Prediction run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) ready_.push_back(lane);
    while (!ready_.empty()) {
      const std::size_t lane = ready_.back();
      ready_.pop_back();
      while (lanes_[lane].head < lanes_[lane].ops.size() && advance(lane)) ++lanes_[lane].head;
    }
    Prediction prediction;
    for (const Queue& lane : lanes_) {
      SHARDMARK_CHECK(lane.head == lane.ops.size(), "the recorded program does not finish");
      prediction.time_us = std::max(prediction.time_us, lane.clock_us);
    }
    prediction.compute_us = std::ranges::max(compute_us_);
    prediction.exchange_us = std::ranges::max(exchange_us_);
    return prediction;
  }

 private:
  struct Queue {
    std::vector<const OpRecord*> ops;
    std::size_t head{0};
    double clock_us{0};
    int num_open{0};   ///< sides of the SendRecv at the head that have met nobody yet
    double met_us{0};  ///< when the sides that have met are done
  };
  struct SignalState {
    bool reached{false};
    double time_us{0};
    std::vector<std::size_t> waiting;
  };
  /// One side of a message: the channel, the members it goes from and to, and whether it is sent.
  using Side = std::tuple<ChannelKey, int, int, bool>;

  /// True when the head of the lane is over. Otherwise whoever completes it puts the lane back.
  bool advance(std::size_t lane) {
    Queue& queue = lanes_[lane];
    const std::size_t rank = lane / num_lanes;
    const OpRecord& head = *queue.ops[queue.head];
    if (const auto* signal = std::get_if<Signal>(&head.op)) {
      SignalState& state = signals_[rank][signal->fence.id];
      state.reached = true;
      state.time_us = queue.clock_us;
      ready_.insert(ready_.end(), state.waiting.begin(), state.waiting.end());
      state.waiting.clear();
      return true;
    }
    if (const auto* await = std::get_if<Await>(&head.op)) {
      SignalState& state = signals_[rank][await->fence.id];
      if (!state.reached) state.waiting.push_back(lane);
      queue.clock_us = std::max(queue.clock_us, state.time_us);
      return state.reached;
    }
    const double time_us = rates_.time_us(head.op);
    const Group* group = group_of(head.op);
    if (group == nullptr || group->size == 1) {
      if (group == nullptr) compute_us_[rank] += time_us;
      queue.clock_us += time_us;
      return true;
    }
    exchange_us_[rank] += time_us;
    if (const auto* message = std::get_if<SendRecv>(&head.op))
      return meet(lane, *message, head.lane, time_us);
    return meet(lane, *group, head.lane, time_us);
  }

  bool meet(std::size_t lane, const SendRecv& o, Lane name, double time_us) {
    const ChannelKey channel = channel_key(o.group, name);
    const int me = o.group.position;
    lanes_[lane].num_open = (o.to >= 0 ? 1 : 0) + (o.from >= 0 ? 1 : 0);
    lanes_[lane].met_us = lanes_[lane].clock_us;
    if (o.to >= 0) meet_side(lane, {channel, me, o.to, true}, time_us);
    if (o.from >= 0) meet_side(lane, {channel, o.from, me, false}, time_us);
    if (lanes_[lane].num_open > 0) return false;
    lanes_[lane].clock_us = lanes_[lane].met_us;
    return true;
  }

  void meet_side(std::size_t lane, const Side& mine, double time_us) {
    Side other = mine;
    std::get<bool>(other) = !std::get<bool>(mine);
    const auto found = open_sides_.find(other);
    if (found == open_sides_.end()) {
      open_sides_[mine] = {lane, time_us};
      return;
    }
    const auto [peer, peer_time_us] = found->second;
    open_sides_.erase(found);
    const double end_us =
        std::max(lanes_[lane].clock_us, lanes_[peer].clock_us) + std::max(time_us, peer_time_us);
    for (const std::size_t end : {lane, peer}) {
      lanes_[end].met_us = std::max(lanes_[end].met_us, end_us);
      --lanes_[end].num_open;
    }
    if (lanes_[peer].num_open > 0 || peer == lane) return;
    finish(peer, lanes_[peer].met_us);
  }

  bool meet(std::size_t lane, const Group& group, Lane name, double time_us) {
    std::vector<std::size_t>& arrived = arrived_[channel_key(group, name)];
    arrived.push_back(lane);
    if (arrived.size() < static_cast<std::size_t>(group.size)) return false;
    double begin_us = 0;
    for (const std::size_t member : arrived) begin_us = std::max(begin_us, lanes_[member].clock_us);
    for (const std::size_t member : arrived)
      if (member != lane) finish(member, begin_us + time_us);
    lanes_[lane].clock_us = begin_us + time_us;
    arrived.clear();
    return true;
  }

  void finish(std::size_t lane, double end_us) {
    lanes_[lane].clock_us = end_us;
    ++lanes_[lane].head;
    ready_.push_back(lane);
  }

  const MachineRates& rates_;
  std::vector<Queue> lanes_;                                   ///< rank * num_lanes + lane
  std::vector<std::map<std::uint32_t, SignalState>> signals_;  ///< by rank, fence id
  std::vector<double> compute_us_, exchange_us_;               ///< by rank
  std::map<ChannelKey, std::vector<std::size_t>> arrived_;
  std::map<Side, std::pair<std::size_t, double>> open_sides_;  ///< the lane that waits, its time
  std::vector<std::size_t> ready_;
};

}  // namespace

Prediction replay(std::span<const std::vector<OpRecord>> ranks, const MachineRates& rates) {
  return Replay{ranks, rates}.run();
}

Prediction predict(const Case& config, const MachineRates& rates) {
  std::vector<Recording> recordings;
  std::vector<std::vector<OpRecord>> ops;
  LayerConfig layer = config.layer;
  for (int rank = 0; rank < layer.parallel.num_ranks(); ++rank) {
    layer.parallel = config.layer.parallel.at(0, rank);
    recordings.push_back(record_program(layer, config.phase, 1));
    ops.push_back(recordings.back().ops);
  }
  return replay(ops, rates);
}

}  // namespace shardmark::bench::context
