// Double binary tree. Two binary trees over the ranks, such that the inner ranks of one are leaves
// of the other (on even numbers of ranks; on odd ones but for a rank); each carries half of the
// data, in segments that follow each other through the tree.
//
// reduce: up both trees. broadcast: down both. all_reduce: up, then down, segment by segment.
// With a root, the trees stand on the other ranks and the root is above both.
//
// About 2 (2 num_segments + 2 log2 n) steps for all_reduce, half of that for the others. Bytes
// across a rank's link, for a buffer of S: about 2 S for all_reduce, S for broadcast and reduce.
//
// Wins for large buffers on many ranks: nearly the ring's bandwidth at logarithmic latency.
//
// Source: P. Sanders, J. Speck, J. L. Traeff, Two-tree algorithms for full bandwidth broadcast,
// reduction and scan, Parallel Computing 35 (2009). The tree's shape is the one NCCL uses.

#include "collectives/generators_internal.hpp"

#include <algorithm>
#include <vector>

namespace shardmark::generators {
namespace {

constexpr int num_segments = 4;  ///< per tree

/// Gives each message a time so that a rank sends at most one and receives at most one at a time.
/// Steps in order of time cannot deadlock: both ends of a message reach it at the same time.
class Timetable {
 public:
  explicit Timetable(int num_ranks) : ranks_(static_cast<std::size_t>(num_ranks)) {}

  /// The earliest time from `ready` on at which both are free.
  int add(int from, int source, int to, int target, Step::Receive receive, int ready) {
    Calendar& sender = ranks_[static_cast<std::size_t>(from)];
    Calendar& receiver = ranks_[static_cast<std::size_t>(to)];
    int time = ready;
    while (sender.at(time).to >= 0 || receiver.at(time).from >= 0) ++time;
    Step& out = sender.at(time);
    out.to = to, out.source = source, out.count = 1;
    Step& in = receiver.at(time);
    in.from = from, in.target = target, in.count_in = 1, in.receive = receive;
    return time;
  }

  void write(PlanBuilder& plan, int rank) const {
    for (const Step& step : ranks_[static_cast<std::size_t>(rank)].steps)
      if (step.to >= 0 || step.from >= 0)
        plan.exchange(step.to, step.source, step.count, step.from, step.target, step.count_in,
                      step.receive);
  }

 private:
  struct Calendar {
    std::vector<Step> steps;  ///< by time
    Step& at(int time) {
      const auto t = static_cast<std::size_t>(time);
      if (t >= steps.size()) steps.resize(t + 1);
      return steps[t];
    }
  };
  std::vector<Calendar> ranks_;
};

/// parent[v] of every position, -1 at 0. Odd positions are leaves.
std::vector<int> binary_tree(int size) {
  std::vector<int> parents(static_cast<std::size_t>(size), -1);
  for (int v = 1; v < size; ++v) {
    const int bit = v & -v;
    const int up = (v ^ bit) | (bit << 1);
    parents[static_cast<std::size_t>(v)] = up < size ? up : v ^ bit;
  }
  return parents;
}

/// One tree over ranks; edges bottom up.
struct Tree {
  struct Edge {
    int child, parent;
  };
  std::vector<Edge> edges;
};

/// `ranks[i]` stands at position i of the tree; `above`, if any, becomes the parent of its root.
Tree tree_over(const std::vector<int>& ranks, int above) {
  const std::vector<int> parents = binary_tree(static_cast<int>(ranks.size()));
  const auto depth = [&](int v) {
    int steps = 0;
    for (; v > 0; v = parents[static_cast<std::size_t>(v)]) ++steps;
    return steps;
  };
  std::vector<std::pair<int, int>> order;
  for (int v = 1; v < static_cast<int>(ranks.size()); ++v) order.emplace_back(-depth(v), v);
  std::ranges::sort(order);
  Tree tree;
  for (const auto& [minus_depth, v] : order) {
    const auto at = static_cast<std::size_t>(v);
    tree.edges.push_back({ranks[at], ranks[static_cast<std::size_t>(parents[at])]});
  }
  if (above >= 0) tree.edges.push_back({ranks[0], above});
  return tree;
}

/// Both trees; `above` is -1 or a rank that is in neither.
std::vector<Tree> two_trees(int num_ranks, int above) {
  std::vector<int> ranks;
  for (int i = above < 0 ? 0 : 1; i < num_ranks; ++i)
    ranks.push_back(above < 0 ? i : (above + i) % num_ranks);
  std::vector<Tree> trees{tree_over(ranks, above)};
  if (ranks.size() % 2 == 0)
    std::ranges::reverse(ranks);
  else
    std::rotate(ranks.begin(), ranks.end() - 1, ranks.end());
  trees.push_back(tree_over(ranks, above));
  return trees;
}

/// Schedules one segment through one tree. `slot_of(rank)` holds it.
template <class SlotOf>
void schedule(Timetable& times, const Tree& tree, Collective collective, int num_ranks,
              const SlotOf& slot_of) {
  std::vector<int> ready(static_cast<std::size_t>(num_ranks), 0);
  const auto ready_at = [&](int rank) -> int& { return ready[static_cast<std::size_t>(rank)]; };
  if (collective != Collective::broadcast)
    for (const auto& [child, parent] : tree.edges) {
      const int time = times.add(child, slot_of(child), parent, slot_of(parent),
                                 Step::Receive::reduce, ready_at(child));
      ready_at(child) = time + 1;
      ready_at(parent) = std::max(ready_at(parent), time + 1);
    }
  if (collective == Collective::reduce) return;
  for (auto edge = tree.edges.rbegin(); edge != tree.edges.rend(); ++edge)
    ready_at(edge->child) = 1 + times.add(edge->parent, slot_of(edge->parent), edge->child,
                                          slot_of(edge->child), Step::Receive::store,
                                          std::max(ready_at(edge->parent), ready_at(edge->child)));
}

}  // namespace

Plan double_tree(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  const int slots = 2 * num_segments;
  const bool reduces = collective == Collective::reduce;
  PlanBuilder plan{collective, "double_tree", n, root, slots, reduces ? slots : 0};
  const Regions at = regions_of(collective, n, slots);
  const auto base = [&](int rank) { return reduces && rank != root ? at.scratch : at.output; };
  const std::vector<Tree> trees = two_trees(n, facts_of(collective).has_root ? root : -1);
  Timetable times{n};
  for (int segment = 0; segment < num_segments; ++segment)
    for (int tree = 0; tree < 2; ++tree)
      schedule(times, trees[static_cast<std::size_t>(tree)], collective, n,
               [&](int rank) { return base(rank) + tree * num_segments + segment; });
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    if (collective != Collective::broadcast || rank == root) plan.copy(at.input, base(rank), slots);
    times.write(plan, rank);
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
