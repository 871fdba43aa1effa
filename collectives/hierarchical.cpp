// Hierarchical: inside hosts, then between hosts, so that the slow links carry the least.
//
// With H hosts of L ranks each:
// all_reduce: a reduce_scatter inside the host; each rank then owns a shard of S / L and
// all-reduces
//   it with the ranks of its place on the other hosts; an all_gather inside the host. Rings all.
//   Steps 2(L-1) + 2(H-1). Between hosts a host sends 2(H-1)/H S in all; a flat ring over hosts in
//   order sends 2(n-1)/n S, which is 1.5 times as much for 2 x 2 ranks.
// all_gather: each rank collects the blocks of its place from the other hosts, then the host shares
//   them. reduce_scatter: the same backwards. Steps (L-1) + (H-1) ring steps, the latter with one
//   message per run of blocks; between hosts (H-1) L blocks per host each way, the least possible.
// broadcast: a tree over hosts, then a tree inside each. reduce: the same backwards.
// Hosts of unequal numbers of ranks: the first rank of a host acts for all (a tree inside the host,
//   the ring between the first ranks, and back).
//
// Wins with several ranks per host when the network is slower than the host.
//
// Source: the two-level schemes of K. Kandalla et al., Designing multi-leader-based allgather
// algorithms for multi-core clusters, IPDPS 2009, and of NCCL's and Horovod's hierarchical
// all-reduce.

#include "collectives/generators_internal.hpp"
#include "collectives/hosts_internal.hpp"

#include <algorithm>

namespace shardmark::generators {
namespace {

/// Makes one rank's steps after another.
class Hierarchy {
 public:
  Hierarchy(PlanBuilder& plan, const Regions& at, const HostLayout& hosts)
      : plan_{plan}, at_{at}, hosts_{hosts}, leaders_{hosts.peers(0)} {}

  void begin(int rank) {
    rank_ = rank;
    host_ = hosts_.host_of(rank);
    place_ = hosts_.place_of(rank);
    inside_ = {hosts_.members(host_), place_};
    if (even()) peers_ = hosts_.peers(place_);
  }

  void all_reduce() {
    const int num_hosts = hosts_.num_hosts();
    if (even()) {
      const int locals = hosts_.ranks_per_host();
      const Chunks shards = Chunks::even(at_.output, locals, num_hosts);
      const Chunks parts = Chunks::even(at_.output + place_ * num_hosts, num_hosts, 1);
      plan_.copy(at_.input, at_.output, locals * num_hosts);
      ring_reduce_scatter(plan_, inside_, shards);
      ring_reduce_scatter(plan_, between(), parts);
      ring_all_gather(plan_, between(), parts);
      ring_all_gather(plan_, inside_, shards);
      return;
    }
    const Chunks parts = Chunks::even(at_.output, num_hosts, 1);
    plan_.copy(at_.input, at_.output, num_hosts);
    tree_reduce(plan_, inside_, at_.output, num_hosts);
    if (leads()) {
      ring_reduce_scatter(plan_, of_leaders(), parts);
      ring_all_gather(plan_, of_leaders(), parts);
    }
    tree_broadcast(plan_, inside_, at_.output, num_hosts);
  }

  void all_gather() {
    if (even()) {
      plan_.copy(at_.input, at_.output + rank_, 1);
      ring_all_gather(plan_, between(), by_host(at_.output, place_));
      ring_all_gather(plan_, inside_, by_place(at_.output));
      return;
    }
    if (leads()) {
      plan_.copy(at_.input, at_.output + rank_, 1);
      for (const int member : inside_.members)
        if (member != rank_) plan_.receive(member, at_.output + member, 1, Step::Receive::store);
      ring_all_gather(plan_, of_leaders(), by_host(at_.output, -1));
    } else {
      plan_.send(inside_.at(0), at_.input, 1);
    }
    tree_broadcast(plan_, inside_, at_.output, num_ranks());
  }

  void reduce_scatter() {
    if (even()) {
      const int num_hosts = hosts_.num_hosts(), locals = hosts_.ranks_per_host();
      for (int l = 0; l < locals; ++l)
        for (int h = 0; h < num_hosts; ++h)
          plan_.copy(at_.input + hosts_.member(h, l), at_.scratch + l * num_hosts + h, 1);
      ring_reduce_scatter(plan_, inside_, Chunks::even(at_.scratch, locals, num_hosts));
      const int shard = at_.scratch + place_ * num_hosts;
      ring_reduce_scatter(plan_, between(), Chunks::even(shard, num_hosts, 1));
      plan_.copy(shard + host_, at_.output, 1);
      return;
    }
    plan_.copy(at_.input, at_.scratch, num_ranks());
    tree_reduce(plan_, inside_, at_.scratch, num_ranks());
    if (!leads()) {
      plan_.receive(inside_.at(0), at_.output, 1, Step::Receive::store);
      return;
    }
    ring_reduce_scatter(plan_, of_leaders(), by_host(at_.scratch, -1));
    for (const int member : inside_.members)
      if (member != rank_) plan_.send(member, at_.scratch + member, 1);
    plan_.copy(at_.scratch + rank_, at_.output, 1);
  }

  /// The root is the first of its host.
  void broadcast(int root) {
    if (rank_ == root) plan_.copy(at_.input, at_.output, 1);
    if (leads()) tree_broadcast(plan_, leaders_from(root), at_.output, 1);
    tree_broadcast(plan_, inside_, at_.output, 1);
  }

  /// The root is the first of its host.
  void reduce(int root) {
    const int sum = rank_ == root ? at_.output : at_.scratch;
    plan_.copy(at_.input, sum, 1);
    tree_reduce(plan_, inside_, sum, 1);
    if (leads()) tree_reduce(plan_, leaders_from(root), sum, 1);
  }

 private:
  [[nodiscard]] bool even() const { return hosts_.ranks_per_host() > 0; }
  [[nodiscard]] bool leads() const { return place_ == 0; }
  [[nodiscard]] int num_ranks() const { return hosts_.num_members(); }
  [[nodiscard]] Team between() const { return {peers_, host_}; }
  [[nodiscard]] Team of_leaders() const { return {leaders_, host_}; }
  /// The leaders, the root first. Valid until the next call.
  [[nodiscard]] Team leaders_from(int root) {
    const int first = hosts_.host_of(root), num_hosts = hosts_.num_hosts();
    from_root_ = leaders_;
    std::rotate(from_root_.begin(), from_root_.begin() + first, from_root_.end());
    return {from_root_, (host_ - first + num_hosts) % num_hosts};
  }

  /// Chunk h: the block of host h's member at `place`, or those of all its members.
  [[nodiscard]] Chunks by_host(int base, int place) const {
    Chunks chunks;
    for (int h = 0; h < hosts_.num_hosts(); ++h) {
      chunks.begin_chunk();
      for (const int member : hosts_.members(h))
        if (place < 0 || hosts_.place_of(member) == place) chunks.add(base + member, 1);
    }
    return chunks;
  }
  /// Chunk l: the blocks of the members at place l.
  [[nodiscard]] Chunks by_place(int base) const {
    Chunks chunks;
    for (int l = 0; l < hosts_.ranks_per_host(); ++l) {
      chunks.begin_chunk();
      for (int h = 0; h < hosts_.num_hosts(); ++h) chunks.add(base + hosts_.member(h, l), 1);
    }
    return chunks;
  }

  PlanBuilder& plan_;
  const Regions& at_;
  const HostLayout& hosts_;
  std::vector<int> leaders_, peers_, from_root_;
  int rank_{0}, host_{0}, place_{0};
  Team inside_{};
};

int slots_of(Collective collective, const HostLayout& hosts) {
  if (collective != Collective::all_reduce) return 1;
  return hosts.num_hosts() * std::max(hosts.ranks_per_host(), 1);
}

int scratch_of(Collective collective, int num_ranks) {
  if (collective == Collective::reduce_scatter) return num_ranks;
  return collective == Collective::reduce ? 1 : 0;
}

}  // namespace

Plan hierarchical(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  HostLayout layout{hosts};
  if (facts_of(collective).has_root) layout.put_first(root);
  const int slots = slots_of(collective, layout);
  PlanBuilder plan{collective, "hierarchical", n, root, slots, scratch_of(collective, n)};
  const Regions at = regions_of(collective, n, slots);
  Hierarchy steps{plan, at, layout};
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    steps.begin(rank);
    switch (collective) {
      case Collective::all_reduce:
        steps.all_reduce();
        break;
      case Collective::all_gather:
        steps.all_gather();
        break;
      case Collective::reduce_scatter:
        steps.reduce_scatter();
        break;
      case Collective::reduce:
        steps.reduce(root);
        break;
      default:
        steps.broadcast(root);
    }
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
