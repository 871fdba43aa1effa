#include "collectives/formula.hpp"

#include "collectives/hosts_internal.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string_view>

namespace shardmark {
namespace {

using generators::HostLayout;

/// Who asks for what of which sizes.
struct Question {
  const Plan& plan;
  std::span<const int> hosts;
  int member;
  std::int64_t block;  ///< elements
  std::span<const std::int64_t> counts;

  [[nodiscard]] int n() const { return plan.num_ranks; }
  [[nodiscard]] Collective collective() const { return plan.collective; }
  /// Elements of slots [first, first + count) of a block.
  [[nodiscard]] std::int64_t slots(int first, int count = 1) const {
    const auto start = [&](std::int64_t slot) { return slot * block / plan.slots_per_block; };
    return start(first + count) - start(first);
  }
  /// Places from the root on, around the circle.
  [[nodiscard]] int from_root() const { return (member - plan.root + n()) % n(); }
};

int rounds(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

/// Children of place v in a binomial tree over n.
int binomial_children(int v, int n) {
  const int reach = v == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : v & -v;
  int children = 0;
  for (int bit = 1; bit < reach && v + bit < n; bit *= 2) ++children;
  return children;
}

std::int64_t ring(const Question& q) {
  const int n = q.n();
  switch (q.collective()) {
    case Collective::all_reduce:
      return 2 * q.block - q.slots(q.member) - q.slots((q.member + 1) % n);
    case Collective::broadcast:
      return q.from_root() == n - 1 ? 0 : q.block;
    case Collective::reduce:
      return q.from_root() == 0 ? 0 : q.block;
    default:
      return (n - 1) * q.block;
  }
}

/// n ranks as a power of two of participants, of which the first `folded` are pairs.
struct Participants {
  explicit Participants(int n)
      : count{static_cast<int>(std::bit_floor(static_cast<unsigned>(n)))}, folded{n - count} {}
  [[nodiscard]] bool gives(int rank) const { return rank < 2 * folded && rank % 2 == 0; }
  [[nodiscard]] bool takes(int rank) const { return rank < 2 * folded && rank % 2 == 1; }
  [[nodiscard]] int of(int rank) const { return rank < 2 * folded ? rank / 2 : rank - folded; }
  /// Ranks that participants [first, first + num) stand for.
  [[nodiscard]] int ranks(int first, int num) const {
    return num + std::clamp(folded - first, 0, num);
  }
  int count, folded;
};

std::int64_t recursive_doubling(const Question& q) {
  const Participants all{q.n()};
  if (all.gives(q.member)) return q.block;
  const int v = all.of(q.member);
  if (q.collective() == Collective::all_reduce)
    return (rounds(all.count) + (all.takes(q.member) ? 1 : 0)) * q.block;
  int blocks = all.takes(q.member) ? q.n() - 1 : 0;
  for (int held = 1; held < all.count; held *= 2) blocks += all.ranks(v / held * held, held);
  return blocks * q.block;
}

std::int64_t halving_doubling(const Question& q) {
  const Participants all{q.n()};
  const int v = all.of(q.member);
  if (q.collective() == Collective::reduce_scatter) {
    if (all.gives(q.member)) return q.n() * q.block;
    return (q.n() - all.ranks(v, 1) + (all.takes(q.member) ? 1 : 0)) * q.block;
  }
  if (all.gives(q.member)) return q.block;
  std::int64_t sent = q.block - q.slots(v) + (all.takes(q.member) ? q.block : 0);
  for (int held = 1; held < all.count; held *= 2) sent += q.slots(v / held * held, held);
  return sent;
}

std::int64_t bruck(const Question& q) {
  if (q.collective() == Collective::all_gather) return (q.n() - 1) * q.block;
  int blocks = 0;
  for (int j = 1; j < q.n(); ++j) blocks += std::popcount(static_cast<unsigned>(j));
  return blocks * q.block;
}

std::int64_t binomial(const Question& q) {
  const int v = q.from_root(), n = q.n();
  const int subtree = v == 0 ? n : std::min(v & -v, n - v);
  switch (q.collective()) {
    case Collective::broadcast:
      return binomial_children(v, n) * q.block;
    case Collective::reduce:
      return v == 0 ? 0 : q.block;
    case Collective::gather:
      return v == 0 ? 0 : subtree * q.block;
    case Collective::scatter:
      return (subtree - 1) * q.block;
    default:
      return (binomial_children(v, n) + (v == 0 ? 0 : 1)) * q.block;
  }
}

/// Edges of a member in one of the two trees.
struct Edges {
  int up{0}, down{0};
};
Edges edges_at(int place, int size, bool below_root) {
  Edges edges{place > 0 || below_root ? 1 : 0};
  for (int w = 1; w < size; ++w) {
    const int bit = w & -w, up = (w ^ bit) | (bit << 1);
    edges.down += (up < size ? up : w ^ bit) == place ? 1 : 0;
  }
  return edges;
}

std::int64_t double_tree(const Question& q) {
  const bool has_root = facts_of(q.collective()).has_root;
  const int size = has_root ? q.n() - 1 : q.n();
  std::array<Edges, 2> trees;
  if (has_root && q.member == q.plan.root) {
    trees.fill({0, 1});
  } else {
    const int place = has_root ? q.from_root() - 1 : q.member;
    trees[0] = edges_at(place, size, has_root);
    trees[1] = edges_at(size % 2 == 0 ? size - 1 - place : (place + 1) % size, size, has_root);
  }
  std::int64_t sent = 0;
  const int half = q.plan.slots_per_block / 2;
  for (int tree = 0; tree < 2; ++tree) {
    const Edges& edges = trees[static_cast<std::size_t>(tree)];
    const int times = (q.collective() == Collective::broadcast ? 0 : edges.up) +
                      (q.collective() == Collective::reduce ? 0 : edges.down);
    sent += times * q.slots(tree * half, half);
  }
  return sent;
}

/// Hosts of equal numbers of ranks: rings inside and between, on every segment.
std::int64_t grid_all_reduce(const Question& q, const HostLayout& layout) {
  const int num_hosts = layout.num_hosts(), locals = layout.ranks_per_host();
  const int host = layout.host_of(q.member), place = layout.place_of(q.member);
  const int segment = num_hosts * locals;
  std::int64_t sent = 0;
  for (int first = 0; first < q.plan.slots_per_block; first += segment) {
    const auto shard = [&](int l) { return q.slots(first + l % locals * num_hosts, num_hosts); };
    const auto part = [&](int h) { return q.slots(first + place * num_hosts + h % num_hosts); };
    sent += 2 * q.slots(first, segment) - shard(place) - shard(place + 1) + 2 * shard(place) -
            part(host) - part(host + 1);
  }
  return sent;
}

std::int64_t on_grid(const Question& q, const HostLayout& layout) {
  const int num_hosts = layout.num_hosts(), locals = layout.ranks_per_host();
  if (q.collective() == Collective::all_reduce) return grid_all_reduce(q, layout);
  return ((locals - 1) * num_hosts + num_hosts - 1) * q.block;
}

/// Hosts of unequal numbers of ranks: the first of each acts for all.
std::int64_t by_leaders(const Question& q, const HostLayout& layout) {
  const int host = layout.host_of(q.member), place = layout.place_of(q.member);
  const auto size_of_host = [&](int h) {
    return static_cast<int>(layout.members(h % layout.num_hosts()).size());
  };
  const bool leads = place == 0;
  const int children = binomial_children(place, size_of_host(host));
  switch (q.collective()) {
    case Collective::all_reduce: {
      const std::int64_t between =
          2 * q.block - q.slots(host) - q.slots((host + 1) % layout.num_hosts());
      return (leads ? between : q.block) + children * q.block;
    }
    case Collective::all_gather:
      return ((leads ? q.n() - size_of_host(host + 1) : 1) + children * q.n()) * q.block;
    default:  // reduce_scatter
      return (leads ? q.n() - 1 : q.n()) * q.block;
  }
}

std::int64_t hierarchical(const Question& q) {
  HostLayout layout{q.hosts};
  if (!facts_of(q.collective()).has_root)
    return layout.ranks_per_host() > 0 ? on_grid(q, layout) : by_leaders(q, layout);
  layout.put_first(q.plan.root);
  const int host = layout.host_of(q.member), place = layout.place_of(q.member);
  const int num_hosts = layout.num_hosts();
  const int from_root = (host - layout.host_of(q.plan.root) + num_hosts) % num_hosts;
  if (q.collective() == Collective::reduce) return q.member == q.plan.root ? 0 : q.block;
  const int inside = binomial_children(place, static_cast<int>(layout.members(host).size()));
  return (inside + (place == 0 ? binomial_children(from_root, num_hosts) : 0)) * q.block;
}

std::int64_t pairwise(const Question& q) {
  if (q.collective() == Collective::all_to_all) return (q.n() - 1) * q.block;
  const auto own =
      q.counts.subspan(static_cast<std::size_t>(q.member) * static_cast<std::size_t>(q.n()),
                       static_cast<std::size_t>(q.n()));
  return std::accumulate(own.begin(), own.end(), std::int64_t{0}) -
         own[static_cast<std::size_t>(q.member)];
}

std::int64_t two_level(const Question& q) {
  const HostLayout layout{q.hosts};
  const int num_hosts = layout.num_hosts(), locals = layout.ranks_per_host();
  if (locals <= 1 || num_hosts <= 1) return pairwise(q);
  return ((num_hosts - 1) * locals + (locals - 1) * num_hosts) * q.block;
}

std::int64_t nothing(const Question&) { return 0; }

struct Formula {
  std::string_view algorithm;
  std::int64_t (*sent)(const Question&);
};
constexpr std::array<Formula, 11> formulas{{{"ring", ring},
                                            {"recursive_doubling", recursive_doubling},
                                            {"halving_doubling", halving_doubling},
                                            {"bruck", bruck},
                                            {"binomial", binomial},
                                            {"double_tree", double_tree},
                                            {"hierarchical", hierarchical},
                                            {"hierarchical_pipelined", hierarchical},
                                            {"pairwise", pairwise},
                                            {"two_level", two_level},
                                            {"dissemination", nothing}}};

}  // namespace

std::optional<std::int64_t> formula_numel_sent(const Plan& plan, std::span<const int> hosts,
                                               int member, std::int64_t block_numel,
                                               std::span<const std::int64_t> counts) {
  const auto found =
      std::ranges::find(formulas, std::string_view{plan.algorithm}, &Formula::algorithm);
  if (found == formulas.end()) return std::nullopt;
  if (plan.num_ranks == 1) return 0;
  return found->sent({plan, hosts, member, block_numel, counts});
}

}  // namespace shardmark
