// Binomial tree. Rank v, counted from the root, hangs below the rank with v's lowest bit cleared.
//
// broadcast: a rank that has the data gives it to its children, the largest subtree first.
// reduce: the same backwards; sums meet on the way to the root.
// gather, scatter: each subtree's blocks travel as one message.
// all_reduce: reduce to rank 0, then broadcast.
//
// Steps ceil(log2 n) (all_reduce twice that). Bytes across the root's link, for a buffer of S:
// broadcast and reduce up to log2(n) S; gather and scatter (n-1)/n S; a leaf moves its own part
// only.
//
// Wins for small buffers with a root.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Perform. Comput. Appl. 19 (2005).

#include "collectives/generators_internal.hpp"

#include <algorithm>
#include <bit>

namespace shardmark::generators {
namespace {

/// The distance to v's parent: its lowest bit; for the root the power of two at or above n.
int reach(int v, int n) {
  return v == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : v & -v;
}

/// The root keeps blocks in rank order, so a subtree that wraps around takes two messages; both
/// ends cut alike.
struct Cut {
  int before_end, after;
};
Cut cut_of(int v, int count, int root, int n) {
  const int before_end = std::min(count, n - (root + v) % n);
  return {before_end, count - before_end};
}

class Subtrees {
 public:
  Subtrees(PlanBuilder& plan, const Regions& at, int rank, int n, int root)
      : plan_{plan}, at_{at}, rank_{rank}, n_{n}, root_{root}, v_{(rank - root + n) % n} {}

  void gather() {
    const int own = v_ == 0 ? at_.output + rank_ : at_.scratch;
    plan_.copy(at_.input, own, 1);
    for (int bit = 1; bit < reach(v_, n_) && v_ + bit < n_; bit *= 2) receive_from(v_ + bit);
    if (v_ > 0) to_parent();
  }

  void scatter() {
    if (v_ > 0) from_parent();
    for (int bit = reach(v_, n_) / 2; bit > 0; bit /= 2)
      if (v_ + bit < n_) send_to(v_ + bit);
    const int own = v_ == 0 ? at_.input + rank_ : at_.scratch;
    if (v_ == 0 || size(v_) > 1) plan_.copy(own, at_.output, 1);
  }

 private:
  [[nodiscard]] int size(int v) const { return std::min(reach(v, n_), n_ - v); }
  [[nodiscard]] int rank_of(int v) const { return (v + root_) % n_; }
  [[nodiscard]] int parent() const { return rank_of(v_ & (v_ - 1)); }
  /// Whether the parent of v keeps v's subtree in rank order: it is the root.
  [[nodiscard]] static bool below_root(int v) { return (v & (v - 1)) == 0; }

  using Runs = std::vector<Chunks::Run>;
  /// The subtree of v in the root's buffer, or in that of another rank from `slot` on.
  [[nodiscard]] Runs in_root(int base, int v) const {
    const Cut cut = cut_of(v, size(v), root_, n_);
    Runs runs{{base + rank_of(v), cut.before_end}};
    if (cut.after > 0) runs.push_back({base, cut.after});
    return runs;
  }
  [[nodiscard]] Runs in_scratch(int slot, int v) const {
    if (!below_root(v)) return {{slot, size(v)}};
    const Cut cut = cut_of(v, size(v), root_, n_);
    Runs runs{{slot, cut.before_end}};
    if (cut.after > 0) runs.push_back({slot + cut.before_end, cut.after});
    return runs;
  }
  void receive(int peer, const Runs& runs) {
    for (const auto& run : runs) plan_.receive(peer, run.slot, run.count, Step::Receive::store);
  }
  void send(int peer, const Runs& runs) {
    for (const auto& run : runs) plan_.send(peer, run.slot, run.count);
  }

  void receive_from(int child) {
    receive(rank_of(child),
            v_ == 0 ? in_root(at_.output, child) : in_scratch(at_.scratch + child - v_, child));
  }
  void send_to(int child) {
    send(rank_of(child),
         v_ == 0 ? in_root(at_.input, child) : in_scratch(at_.scratch + child - v_, child));
  }
  void to_parent() { send(parent(), in_scratch(at_.scratch, v_)); }
  void from_parent() { receive(parent(), in_scratch(size(v_) > 1 ? at_.scratch : at_.output, v_)); }

  PlanBuilder& plan_;
  const Regions& at_;
  int rank_, n_, root_, v_;
};

void binomial_steps(PlanBuilder& plan, Collective collective, const Regions& at,
                    std::span<const int> from_root, int rank, int root) {
  const int n = static_cast<int>(from_root.size());
  const Team team{from_root, (rank - root + n) % n};
  switch (collective) {
    case Collective::broadcast:
      if (rank == root) plan.copy(at.input, at.output, 1);
      tree_broadcast(plan, team, at.output, 1);
      break;
    case Collective::reduce: {
      const int sum = rank == root ? at.output : at.scratch;
      plan.copy(at.input, sum, 1);
      tree_reduce(plan, team, sum, 1);
      break;
    }
    case Collective::gather:
      Subtrees{plan, at, rank, n, root}.gather();
      break;
    case Collective::scatter:
      Subtrees{plan, at, rank, n, root}.scatter();
      break;
    default:
      plan.copy(at.input, at.output, 1);
      tree_reduce(plan, team, at.output, 1);
      tree_broadcast(plan, team, at.output, 1);
  }
}

}  // namespace

void tree_reduce(PlanBuilder& plan, const Team& team, int slot, int count) {
  const int v = team.index;
  for (int bit = 1; bit < reach(v, team.size()); bit *= 2)
    if (v + bit < team.size()) plan.receive(team.at(v + bit), slot, count, Step::Receive::reduce);
  if (v > 0) plan.send(team.at(v & (v - 1)), slot, count);
}

void tree_broadcast(PlanBuilder& plan, const Team& team, int slot, int count) {
  const int v = team.index;
  if (v > 0) plan.receive(team.at(v & (v - 1)), slot, count, Step::Receive::store);
  for (int bit = reach(v, team.size()) / 2; bit > 0; bit /= 2)
    if (v + bit < team.size()) plan.send(team.at(v + bit), slot, count);
}

Plan binomial(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  // The largest subtree below the root.
  const int largest = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
  const bool moves_blocks = collective == Collective::gather || collective == Collective::scatter;
  const int num_scratch = moves_blocks ? largest : collective == Collective::reduce ? 1 : 0;
  PlanBuilder plan{collective, "binomial", n, root, 1, num_scratch};
  const Regions at = regions_of(collective, n, 1);
  std::vector<int> from_root = everyone(n);
  std::rotate(from_root.begin(), from_root.begin() + root, from_root.end());
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    binomial_steps(plan, collective, at, from_root, rank, root);
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
