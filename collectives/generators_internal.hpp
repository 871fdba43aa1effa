#pragma once

// What the generators share: where the regions of a plan begin, parts of a group as teams, and the
// patterns (ring, binomial tree) that several algorithms are made of.

#include "collectives/plan.hpp"

#include <span>
#include <vector>

namespace shardmark::generators {

/// First slot of each region.
struct Regions {
  int input{0}, output{0}, scratch{0};
};
[[nodiscard]] Regions regions_of(Collective collective, int num_ranks, int slots_per_block);

/// Some members of the group in an order of their own; `index` is where the current rank stands.
struct Team {
  std::span<const int> members;
  int index{0};
  [[nodiscard]] int size() const { return static_cast<int>(members.size()); }
  /// The member `index` + `steps` around the circle.
  [[nodiscard]] int neighbour(int steps) const { return at(wrapped(index + steps)); }
  [[nodiscard]] int at(int i) const { return members[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int wrapped(int i) const { return (i % size() + size()) % size(); }
};
/// 0, 1, ..., n - 1.
[[nodiscard]] std::vector<int> everyone(int num_ranks);

/// A buffer cut into chunks that travel as one; a chunk is a few runs of slots.
class Chunks {
 public:
  struct Run {
    int slot, count;
  };
  /// `number` chunks of `count` slots, one after another from `slot` on.
  [[nodiscard]] static Chunks even(int slot, int number, int count);
  void begin_chunk() { first_.push_back(runs_.size()); }
  /// Adds to the latest chunk; joins neighbours.
  void add(int slot, int count);
  [[nodiscard]] std::span<const Run> operator[](int chunk) const;

 private:
  std::vector<Run> runs_;
  std::vector<std::size_t> first_;
};

/// One message per run; the k-th run out and the k-th run in share a step.
void exchange_chunks(PlanBuilder& plan, int to, std::span<const Chunks::Run> out, int from,
                     std::span<const Chunks::Run> in, Step::Receive receive);

/// Chunk i of every member ends reduced in member i, n - 1 steps; the others hold partial sums.
void ring_reduce_scatter(PlanBuilder& plan, const Team& team, const Chunks& chunks);
/// Chunk i of member i ends in every member, n - 1 steps.
void ring_all_gather(PlanBuilder& plan, const Team& team, const Chunks& chunks);
/// Binomial trees with member 0 of the team as the root; ceil(log2 n) steps.
void tree_reduce(PlanBuilder& plan, const Team& team, int slot, int count);
void tree_broadcast(PlanBuilder& plan, const Team& team, int slot, int count);

// The generators, for two ranks or more; see the file of the same name.
[[nodiscard]] Plan ring(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan recursive_doubling(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan halving_doubling(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan bruck(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan binomial(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan double_tree(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan hierarchical(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan hierarchical_pipelined(Collective collective, std::span<const int> hosts,
                                          int root);
[[nodiscard]] Plan pairwise(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan two_level(Collective collective, std::span<const int> hosts, int root);
[[nodiscard]] Plan dissemination(Collective collective, std::span<const int> hosts, int root);

}  // namespace shardmark::generators
