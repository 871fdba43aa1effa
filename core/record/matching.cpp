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
  bool operator==(const Signature&) const = default;
};

Signature signature(const Op& op) {
  return std::visit(overloaded{
                        [&](const AllReduce& o) {
                          return Signature{op.index(), o.x.dtype, o.x.bytes(), o.reduction};
                        },
                        [&](const AllGather& o) {
                          return Signature{op.index(), o.y.dtype, o.y.bytes()};
                        },
                        [&](const ReduceScatter& o) {
                          return Signature{op.index(), o.x.dtype, o.x.bytes()};
                        },
                        [&](const Local auto&) { return Signature{op.index()}; },
                    },
                    op);
}

std::string describe_call(const OpRecord& record) {
  const Signature s = signature(record.op);
  return message(describe(record), " of ", s.bytes, " bytes ", name_of(s.dtype),
                 s.reduction == Reduction::max ? " (max)" : "");
}

/// One communicator and what each member, by world rank, submits on it.
struct Channel {
  Group group;
  Lane lane{Lane::compute};
  std::map<int, Calls> calls;
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
      if (is_new) at->second = Channel{*group, record.lane, {}};
      at->second.calls[rank].push_back(&record);
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
    if (all_members_exist(channel.group, ranks.size()))
      compare_members(channel, problems);
    else
      problems.push_back(message(channel.group.to_string(), " lane ", name_of(channel.lane),
                                 " has a member outside ranks 0 to ",
                                 static_cast<std::int64_t>(ranks.size()) - 1, ", first used by ",
                                 describe_call(*channel.calls.begin()->second.front())));
  }
  return problems;
}

}  // namespace shardmark
