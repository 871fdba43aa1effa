#include "sim/measured.hpp"

#include "core/error.hpp"
#include "core/record/channel.hpp"

#include <map>
#include <memory>
#include <unordered_map>

namespace shardmark {
namespace {

using Durations = std::vector<std::unordered_map<std::uint32_t, std::int64_t>>;  ///< [rank][seq]

/// The n-th call on a communicator, or the n-th message from one member to another.
using CallName = std::tuple<ChannelKey, int, int, int>;

/// The shortest time of all who take part in a call.
class Shortest {
 public:
  explicit Shortest(const Durations& durations) : durations_{durations} {}

  void add(int rank, const OpRecord& record) {
    const Group* group = group_of(record.op);
    if (group == nullptr || group->size == 1) return;
    const ChannelKey channel = channel_key(*group, record.lane);
    const auto* message = std::get_if<SendRecv>(&record.op);
    if (message == nullptr) return add_to(channel, -1, -1, true, rank, record);
    if (message->to >= 0) add_to(channel, group->position, message->to, true, rank, record);
    if (message->from >= 0) add_to(channel, message->from, group->position, false, rank, record);
  }

  void apply(Durations& durations) const {
    for (const auto& [call, users] : users_)
      for (const auto& [rank, seq] : users)
        durations[static_cast<std::size_t>(rank)][seq] = shortest_.at(call);
  }

 private:
  /// Every participant's time counts; only the senders of messages are given it.
  void add_to(const ChannelKey& channel, int from, int to, bool pays, int rank,
              const OpRecord& record) {
    const int number = counts_[{channel, from, to, from < 0 || pays ? rank : -1 - rank}]++;
    const CallName call{channel, from, to, number};
    const auto& own = durations_[static_cast<std::size_t>(rank)];
    const auto found = own.find(record.seq);
    const std::int64_t time_ns = found == own.end() ? 0 : found->second;
    const auto [place, is_new] = shortest_.try_emplace(call, time_ns);
    if (!is_new) place->second = std::min(place->second, time_ns);
    if (pays) users_[call].emplace_back(rank, record.seq);
  }

  const Durations& durations_;
  std::map<CallName, int> counts_;
  std::map<CallName, std::int64_t> shortest_;
  std::map<CallName, std::vector<std::pair<int, std::uint32_t>>> users_;
};

}  // namespace

OpCost measured_cost(std::span<const std::vector<OpRecord>> lists,
                     std::span<const std::vector<KernelRecord>> kernels) {
  SHARDMARK_CHECK(lists.size() == kernels.size(), lists.size(), " op lists, kernels of ",
                  kernels.size(), " ranks");
  auto durations = std::make_shared<Durations>(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (const KernelRecord& kernel : kernels[rank])
      (*durations)[rank][kernel.op_seq] += kernel.end_ns - kernel.start_ns;
  Shortest shortest{*durations};
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (const OpRecord& record : lists[rank]) shortest.add(static_cast<int>(rank), record);
  shortest.apply(*durations);
  return [durations](int rank, const OpRecord& record) -> std::int64_t {
    const auto& own = (*durations)[static_cast<std::size_t>(rank)];
    const auto found = own.find(record.seq);
    return found == own.end() ? 0 : found->second;
  };
}

}  // namespace shardmark
