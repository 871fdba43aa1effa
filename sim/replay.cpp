#include "sim/replay.hpp"

#include "core/error.hpp"
#include "core/record/channel.hpp"
#include "core/record/describe.hpp"
#include "sim/account.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

namespace shardmark {
namespace {

/// A communicator, seen from classes of ranks: all its ranks' groups have the same classes.
using ChannelName = std::tuple<Axis, int, int, Lane, std::vector<int>>;

class Engine {
 public:
  Engine(std::span<const std::vector<OpRecord>> lists, const Folding& folding,
         const OpCost& cost_ns, const LaneMap& map)
      : lists_{lists},
        folding_{folding},
        cost_ns_{cost_ns},
        lanes_(lists.size() * num_lanes),
        fences_(lists.size()),
        own_channels_(lists.size()) {
    SHARDMARK_CHECK(lists.size() == folding.num_classes(), lists.size(), " op lists for ",
                    folding.num_classes(), " classes of ranks");
    for (std::size_t c = 0; c < lists.size(); ++c) {
      replay_.ops.emplace_back(lists[c].size());
      for (std::uint32_t i = 0; i < lists[c].size(); ++i) {
        replay_.ops[c][i].seq = lists[c][i].seq;
        lanes_[c * num_lanes + index_of(map[index_of(lists[c][i].lane)])].ops.push_back(i);
      }
    }
  }

  Replay run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) ready_.push_back(lane);
    while (!ready_.empty()) {
      const std::size_t lane = ready_.back();
      ready_.pop_back();
      while (lanes_[lane].head < lanes_[lane].ops.size() && advance(lane)) ++lanes_[lane].head;
    }
    refuse_if_stuck();
    for (const auto& ops : replay_.ops)
      for (const TimedOp& op : ops) replay_.window_ns = std::max(replay_.window_ns, op.end_ns);
    for (std::size_t c = 0; c < lists_.size(); ++c)
      replay_.times.push_back(account(lists_[c], replay_.ops[c], replay_.window_ns));
    return std::move(replay_);
  }

 private:
  struct Queue {
    std::vector<std::uint32_t> ops;  ///< positions in the class' list
    std::size_t head{0};
    std::int64_t free_ns{0};  ///< when the op before the head ended
    int num_open{0};          ///< messages of the SendRecv at the head that have met nobody yet
  };
  struct FenceState {
    bool reached{false};
    std::int64_t at_ns{0};
    std::vector<std::size_t> waiting;
  };
  struct Channel {
    std::size_t num_classes{0};
    std::vector<std::size_t> arrived;
  };
  /// One end of messages: the channel, the classes they go from and to, how many places further in
  /// the group, and whether it is the sender's.
  using End = std::tuple<int, int, int, int, bool>;

  [[nodiscard]] const OpRecord& head_of(std::size_t lane) const {
    return lists_[lane / num_lanes][lanes_[lane].ops[lanes_[lane].head]];
  }
  [[nodiscard]] TimedOp& timed_head(std::size_t lane) {
    return replay_.ops[lane / num_lanes][lanes_[lane].ops[lanes_[lane].head]];
  }
  [[nodiscard]] std::int64_t cost_of(std::size_t lane) const {
    const int rank = folding_.representatives[lane / num_lanes];
    const std::int64_t cost_ns = cost_ns_(rank, head_of(lane));
    SHARDMARK_CHECK(cost_ns >= 0, "rank ", rank, " ", describe(head_of(lane)), " takes ", cost_ns,
                    " ns");
    return cost_ns;
  }

  /// True when the head of the lane is over. Otherwise whoever completes it puts the lane back.
  bool advance(std::size_t lane) {
    const OpRecord& record = head_of(lane);
    TimedOp& timed = timed_head(lane);
    timed.start_ns = timed.ready_ns = timed.end_ns = lanes_[lane].free_ns;
    if (const auto* signal = std::get_if<Signal>(&record.op)) return reach(lane, signal->fence);
    if (const auto* await = std::get_if<Await>(&record.op)) return wait(lane, await->fence);
    const Group* group = group_of(record.op);
    if (group != nullptr && group->size > 1) {
      if (const auto* message = std::get_if<SendRecv>(&record.op))
        return meet(lane, *message, record.lane);
      return meet(lane, *group, record.lane);
    }
    timed.end_ns = lanes_[lane].free_ns += cost_of(lane);
    return true;
  }

  bool reach(std::size_t lane, Fence fence) {
    FenceState& state = fences_[lane / num_lanes][fence.id];
    state.reached = true;
    state.at_ns = lanes_[lane].free_ns;
    ready_.insert(ready_.end(), state.waiting.begin(), state.waiting.end());
    state.waiting.clear();
    return true;
  }

  bool wait(std::size_t lane, Fence fence) {
    FenceState& state = fences_[lane / num_lanes][fence.id];
    if (!state.reached) {
      state.waiting.push_back(lane);
      return false;
    }
    TimedOp& timed = timed_head(lane);
    timed.start_ns = timed.ready_ns = timed.end_ns = lanes_[lane].free_ns =
        std::max(lanes_[lane].free_ns, state.at_ns);
    return true;
  }

  bool meet(std::size_t lane, const Group& group, Lane name) {
    Channel& channel = channels_[static_cast<std::size_t>(channel_of(lane, group, name))];
    channel.arrived.push_back(lane);
    if (channel.arrived.size() < channel.num_classes) return false;
    std::int64_t ready_ns = 0, cost_ns = 0;
    for (const std::size_t member : channel.arrived) {
      ready_ns = std::max(ready_ns, lanes_[member].free_ns);
      cost_ns = std::max(cost_ns, cost_of(member));
    }
    for (const std::size_t member : channel.arrived) {
      finish(member, ready_ns, ready_ns + cost_ns);
      if (member != lane) resume(member);
    }
    channel.arrived.clear();
    return true;
  }

  bool meet(std::size_t lane, const SendRecv& o, Lane name) {
    const int channel = channel_of(lane, o.group, name);
    const int me = o.group.position, size = o.group.size;
    const auto class_of = [&](int member) {
      return folding_.class_of[static_cast<std::size_t>(o.group.world_rank(member))];
    };
    lanes_[lane].num_open = (o.to >= 0 ? 1 : 0) + (o.from >= 0 ? 1 : 0);
    if (o.to >= 0)
      meet_end(lane, {channel, class_of(me), class_of(o.to), (o.to - me + size) % size, true});
    if (o.from >= 0)
      meet_end(lane, {channel, class_of(o.from), class_of(me), (me - o.from + size) % size, false});
    return lanes_[lane].num_open == 0;
  }

  void meet_end(std::size_t lane, const End& mine) {
    End other = mine;
    std::get<bool>(other) = !std::get<bool>(mine);
    std::deque<std::size_t>& waiting = open_ends_[other];
    if (waiting.empty()) {
      open_ends_[mine].push_back(lane);
      return;
    }
    const std::size_t peer = waiting.front();
    waiting.pop_front();
    const std::int64_t ready_ns = std::max(timed_head(lane).start_ns, timed_head(peer).start_ns);
    const std::int64_t end_ns = ready_ns + cost_of(std::get<bool>(mine) ? lane : peer);
    for (const std::size_t side : {lane, peer}) {
      const TimedOp& timed = timed_head(side);
      finish(side, std::max(timed.ready_ns, ready_ns), std::max(timed.end_ns, end_ns));
      --lanes_[side].num_open;
    }
    if (peer != lane && lanes_[peer].num_open == 0) resume(peer);
  }

  void finish(std::size_t lane, std::int64_t ready_ns, std::int64_t end_ns) {
    timed_head(lane).ready_ns = ready_ns;
    timed_head(lane).end_ns = lanes_[lane].free_ns = end_ns;
  }
  void resume(std::size_t lane) {
    ++lanes_[lane].head;
    ready_.push_back(lane);
  }

  int channel_of(std::size_t lane, const Group& group, Lane name) {
    const ChannelKey key = channel_key(group, name);
    const auto [own, is_new] = own_channels_[lane / num_lanes].try_emplace(key, 0);
    if (!is_new) return own->second;
    std::vector<int> classes;
    for (int member = 0; member < group.size; ++member)
      classes.push_back(folding_.class_of.at(static_cast<std::size_t>(group.world_rank(member))));
    std::ranges::sort(classes);
    const auto repeated = std::ranges::unique(classes);
    classes.erase(repeated.begin(), repeated.end());
    const std::size_t num_classes = classes.size();
    const ChannelName name_of_channel{group.axis, group.stride, group.size, std::get<Lane>(key),
                                      std::move(classes)};
    const auto [place, is_unknown] =
        channel_numbers_.try_emplace(name_of_channel, static_cast<int>(channels_.size()));
    if (is_unknown) channels_.push_back({num_classes, {}});
    return own->second = place->second;
  }

  void refuse_if_stuck() const {
    std::string problems;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].head == lanes_[lane].ops.size()) continue;
      const OpRecord& record = head_of(lane);
      const Group* group = group_of(record.op);
      problems += message("\n  rank ", folding_.representatives[lane / num_lanes], " lane ",
                          name_of(record.lane), " is stuck at ", describe(record), ", waits for ");
      if (const auto* await = std::get_if<Await>(&record.op))
        problems += message("fence ", await->fence.id);
      else
        problems += group->to_string();
    }
    if (!problems.empty()) throw Error{"the op lists deadlock:" + problems};
  }

  std::span<const std::vector<OpRecord>> lists_;
  const Folding& folding_;
  const OpCost& cost_ns_;
  std::vector<Queue> lanes_;  ///< [class * num_lanes + lane]
  std::vector<std::unordered_map<std::uint32_t, FenceState>> fences_;  ///< by class
  std::vector<std::map<ChannelKey, int>> own_channels_;                ///< by class
  std::map<ChannelName, int> channel_numbers_;
  std::vector<Channel> channels_;
  std::map<End, std::deque<std::size_t>> open_ends_;  ///< lanes that wait with it, in order
  std::vector<std::size_t> ready_;
  Replay replay_;
};

}  // namespace

LaneMap own_lanes() {
  LaneMap map{};
  for (std::size_t i = 0; i < num_lanes; ++i) map[i] = static_cast<Lane>(i);
  return map;
}

LaneMap lanes_of_one_core() {
  LaneMap map = own_lanes();
  for (const Lane lane : {Lane::tp, Lane::cp, Lane::ep, Lane::dp, Lane::copy})
    map[index_of(lane)] = Lane::compute;
  return map;
}

Replay replay(std::span<const std::vector<OpRecord>> lists, const Folding& folding,
              const OpCost& cost_ns, const LaneMap& lanes) {
  return Engine{lists, folding, cost_ns, lanes}.run();
}

Replay replay(std::span<const std::vector<OpRecord>> lists, const OpCost& cost_ns) {
  return replay(lists, unfolded(static_cast<int>(lists.size())), cost_ns);
}

std::vector<KernelRecord> kernel_records(std::span<const OpRecord> list,
                                         std::span<const TimedOp> timed) {
  std::vector<KernelRecord> records;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OpKind kind = kind_of(list[i].op);
    if (kind == OpKind::ordering) continue;
    records.push_back({.op_seq = list[i].seq,
                       .lane = list[i].lane,
                       .kind = kind,
                       .name = name_of(list[i].op).data(),
                       .start_ns = timed[i].start_ns,
                       .end_ns = timed[i].end_ns});
  }
  return records;
}

}  // namespace shardmark
