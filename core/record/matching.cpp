#include "core/record/matching.hpp"

#include "core/error.hpp"
#include "core/record/channel.hpp"
#include "core/record/describe.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace shardmark {
namespace {

using Problems = std::vector<std::string>;
using Calls = std::vector<const OpRecord*>;

/// What all members must agree on.
struct Signature {
  std::size_t kind{0};
  DType dtype{DType::f32};
  std::int64_t bytes{0};
  Reduction reduction{Reduction::sum};
  int root{-1};
  std::vector<std::int64_t> counts{};
  bool operator==(const Signature&) const = default;
};

// One overload per collective; of two tensors the smaller one, which every member has.
Signature signature_of(const AllReduce& o) { return {0, o.x.dtype, o.x.bytes(), o.reduction}; }
Signature signature_of(const AllGather& o) { return {0, o.y.dtype, o.y.bytes()}; }
Signature signature_of(const ReduceScatter& o) { return {0, o.x.dtype, o.x.bytes(), o.reduction}; }
Signature signature_of(const AllToAll& o) { return {0, o.x.dtype, o.x.bytes()}; }
Signature signature_of(const AllToAllV& o) {
  return {0, o.x.dtype, 0, Reduction::sum, -1, {o.counts.begin(), o.counts.end()}};
}
Signature signature_of(const Broadcast& o) {
  return {0, o.y.dtype, o.y.bytes(), Reduction::sum, o.root};
}
Signature signature_of(const Reduce& o) { return {0, o.x.dtype, o.x.bytes(), o.reduction, o.root}; }
Signature signature_of(const Gather& o) {
  return {0, o.x.dtype, o.x.bytes(), Reduction::sum, o.root};
}
Signature signature_of(const Scatter& o) {
  return {0, o.y.dtype, o.y.bytes(), Reduction::sum, o.root};
}
Signature signature_of(const SendRecv&) { return {}; }  // matched by pairs
Signature signature_of(const Barrier&) { return {}; }
Signature signature_of(const Local auto&) { return {}; }

Signature signature(const Op& op) {
  Signature result = std::visit([](const auto& o) { return signature_of(o); }, op);
  result.kind = op.index();
  return result;
}

std::string describe_call(const OpRecord& record) {
  const Signature s = signature(record.op);
  std::string text = describe(record);
  if (!std::holds_alternative<Barrier>(record.op))
    text += message(" of ", s.bytes, " bytes ", name_of(s.dtype));
  if (s.reduction != Reduction::sum) text += message(" (", name_of(s.reduction), ")");
  if (s.root >= 0) text += message(" with root ", s.root);
  if (!s.counts.empty()) {
    text += ", counts";
    for (const std::int64_t count : s.counts) text += ' ' + std::to_string(count);
  }
  return text;
}

/// What one member sends to another and what that receives from it, in order.
struct Messages {
  Calls sent, received;
};

/// One communicator and what each member submits on it.
struct Channel {
  Group group;
  Lane lane{Lane::compute};
  const OpRecord* first{nullptr};
  std::map<int, Calls> calls;                        ///< collectives, by world rank
  std::map<std::pair<int, int>, Messages> messages;  ///< by members (from, to)
};

bool same_call(const OpRecord& a, const OpRecord& b, bool with_paths) {
  return signature(a.op) == signature(b.op) && (!with_paths || *a.path == *b.path);
}

/// The first call at which the two differ, or nothing.
std::optional<std::size_t> first_difference(const Calls& a, const Calls& b, bool with_paths) {
  const std::size_t both = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < both; ++i)
    if (!same_call(*a[i], *b[i], with_paths)) return i;
  return a.size() == b.size() ? std::nullopt : std::optional{both};
}

/// True if one uses no path that the other lacks.
bool paths_comparable(const Calls& a, const Calls& b) {
  const auto sorted = [](const Calls& calls) {
    std::set<std::string_view> paths;
    for (const OpRecord* call : calls) paths.insert(*call->path);
    return paths;
  };
  const auto paths_a = sorted(a);
  const auto paths_b = sorted(b);
  return std::ranges::includes(paths_a, paths_b) || std::ranges::includes(paths_b, paths_a);
}

/// Where `theirs` departs from `reference`. Calls of equal size can only be told apart by their
/// paths, so those count as well, unless the ranks name their scopes differently altogether.
std::optional<std::size_t> difference(const Calls& reference, const Calls& theirs) {
  const auto by_path = first_difference(reference, theirs, true);
  if (!by_path || paths_comparable(reference, theirs)) return by_path;
  return first_difference(reference, theirs, false);
}

std::string_view explain(const Calls& reference, const Calls& theirs, std::size_t at) {
  const auto equal = [&](std::size_t i, std::size_t j) {
    return i < reference.size() && j < theirs.size() && same_call(*reference[i], *theirs[j], true);
  };
  if (equal(at, at + 1) && equal(at + 1, at)) return "; the order is swapped";
  if (theirs.size() < reference.size()) return "; a call is missing";
  if (theirs.size() > reference.size()) return "; there is a call too many";
  return "";
}

void compare_members(const Channel& channel, Problems& problems) {
  const Group& group = channel.group;
  static const Calls none;
  const auto calls_of = [&](int member) -> const Calls& {
    const auto found = channel.calls.find(group.world_rank(member));
    return found == channel.calls.end() ? none : found->second;
  };
  const Calls& reference = calls_of(0);
  for (int member = 1; member < group.size; ++member) {
    const Calls& theirs = calls_of(member);
    const auto at = difference(reference, theirs);
    if (!at) continue;
    const auto text = [&](const Calls& calls) {
      return *at < calls.size() ? describe_call(*calls[*at]) : std::string{"nothing"};
    };
    problems.push_back(message(group.to_string(), " lane ", name_of(channel.lane), ", call ", *at,
                               ": rank ", group.world_rank(0), " submits ", text(reference),
                               ", rank ", group.world_rank(member), " submits ", text(theirs),
                               explain(reference, theirs, *at)));
  }
}

/// Of the two lanes of a channel a rank uses one for each kind of call: they have no order.
void check_lane(const Channel& channel, int rank, const Calls& calls, Problems& problems) {
  const auto other = std::ranges::find_if(
      calls, [&](const OpRecord* call) { return call->lane != calls.front()->lane; });
  if (other == calls.end()) return;
  problems.push_back(message(channel.group.to_string(), " lane ", name_of(channel.lane), ": rank ",
                             rank, " submits ", describe(*calls.front()), " on lane ",
                             name_of(calls.front()->lane), " and ", describe(**other), " on lane ",
                             name_of((*other)->lane), ", which have no order"));
}

void check_lanes(const Channel& channel, Problems& problems) {
  for (const auto& [rank, calls] : channel.calls) check_lane(channel, rank, calls, problems);
  for (const auto& [pair, messages] : channel.messages) {
    check_lane(channel, channel.group.world_rank(pair.first), messages.sent, problems);
    check_lane(channel, channel.group.world_rank(pair.second), messages.received, problems);
  }
}

std::string describe_side(const Calls& calls, std::size_t at, bool sends) {
  if (at >= calls.size()) return "nothing";
  const auto& o = std::get<SendRecv>(calls[at]->op);
  const Tensor& tensor = sends ? o.x : o.y;
  return message(tensor.bytes(), " bytes ", name_of(tensor.dtype), " at ", describe(*calls[at]));
}

void compare_messages(const Channel& channel, Problems& problems) {
  for (const auto& [pair, messages] : channel.messages) {
    const Calls &sent = messages.sent, &received = messages.received;
    const std::size_t both = std::min(sent.size(), received.size());
    std::size_t at = 0;
    const auto equal = [&] {
      const Tensor& x = std::get<SendRecv>(sent[at]->op).x;
      const Tensor& y = std::get<SendRecv>(received[at]->op).y;
      return x.dtype == y.dtype && x.bytes() == y.bytes();
    };
    while (at < both && equal()) ++at;
    if (at == sent.size() && at == received.size()) continue;
    problems.push_back(
        message(channel.group.to_string(), " lane ", name_of(channel.lane), ", message ", at,
                " from rank ", channel.group.world_rank(pair.first), " to rank ",
                channel.group.world_rank(pair.second), ": sends ", describe_side(sent, at, true),
                ", receives ", describe_side(received, at, false)));
  }
}

/// Adds one rank's call to its channel.
void add_call(Channel& channel, int rank, const OpRecord& record, Problems& problems) {
  const auto* o = std::get_if<SendRecv>(&record.op);
  if (o == nullptr) {
    channel.calls[rank].push_back(&record);
    return;
  }
  const int me = o->group.position;
  for (const int peer : {o->to, o->from})
    if (peer < -1 || peer >= o->group.size)
      problems.push_back(message("rank ", rank, ": ", describe(record), " with member ", peer,
                                 " of ", o->group.to_string(), ", which has none"));
  if (o->to >= 0) channel.messages[{me, o->to}].sent.push_back(&record);
  if (o->from >= 0) channel.messages[{o->from, me}].received.push_back(&record);
}

/// Sorts all communication by communicator; a group of one needs nobody to match.
std::map<ChannelKey, Channel> collect(std::span<const std::vector<OpRecord>> ranks,
                                      Problems& problems) {
  std::map<ChannelKey, Channel> channels;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const OpRecord& record : ranks[r]) {
      const Group* group = group_of(record.op);
      if (group == nullptr || group->size == 1) continue;
      if (group->world_rank(group->position) != rank)
        problems.push_back(message("rank ", rank, " submits ", describe_call(record), " as member ",
                                   group->position, " of ", group->to_string(),
                                   ", which is another rank"));
      auto [at, is_new] = channels.try_emplace(channel_key(*group, record.lane));
      if (is_new) at->second = Channel{*group, channel_of(record.lane), &record, {}, {}};
      add_call(at->second, rank, record, problems);
    }
  }
  return channels;
}

bool all_members_exist(const Group& group, std::size_t num_ranks) {
  const int ends[] = {group.world_rank(0), group.world_rank(group.size - 1)};
  return std::ranges::all_of(
      ends, [&](int rank) { return rank >= 0 && rank < static_cast<int>(num_ranks); });
}

}  // namespace

std::vector<std::string> check_matching(std::span<const std::vector<OpRecord>> ranks) {
  Problems problems;
  for (const auto& [key, channel] : collect(ranks, problems)) {
    if (all_members_exist(channel.group, ranks.size())) {
      compare_members(channel, problems);
      compare_messages(channel, problems);
      check_lanes(channel, problems);
    } else {
      problems.push_back(message(channel.group.to_string(), " lane ", name_of(channel.lane),
                                 " has a member outside ranks 0 to ",
                                 static_cast<std::int64_t>(ranks.size()) - 1, ", first used by ",
                                 describe(*channel.first)));
    }
  }
  return problems;
}

}  // namespace shardmark
