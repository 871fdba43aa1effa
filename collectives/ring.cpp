// Ring. Ranks stand in a circle and only talk to their neighbours.
//
// all_gather: every rank passes on the block that it got in the step before. n - 1 steps.
// reduce_scatter: partial sums travel around and take up each rank's part. n - 1 steps.
// all_reduce: a reduce_scatter, then an all_gather. 2(n - 1) steps.
// broadcast, reduce: a chain from the root (to the root), pipelined in `num_segments` segments.
//   n - 2 + num_segments steps.
//
// Bytes across a rank's link, for a buffer of S: all_reduce 2(n-1)/n S, all_gather and
// reduce_scatter (n-1)/n S, the least possible; broadcast and reduce S.
//
// Wins for large buffers, where bytes count and steps do not; loses for small ones, since the
// number of steps grows with n.
//
// Source: P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
// workstations, J. Parallel Distrib. Comput. 69 (2009).

#include "collectives/generators_internal.hpp"

namespace shardmark::generators {
namespace {

constexpr int num_segments = 8;

void all_reduce(PlanBuilder& plan, const Team& team, const Regions& at, const Chunks& chunks) {
  plan.copy(at.input, at.output, team.size());
  ring_reduce_scatter(plan, team, chunks);
  ring_all_gather(plan, team, chunks);
}

/// Partial sums change between two scratch slots: one is sent while the other takes the next.
void reduce_scatter(PlanBuilder& plan, const Team& team, const Regions& at) {
  const int n = team.size();
  int held = at.input + team.wrapped(team.index - 1);
  for (int step = 0; step < n - 1; ++step) {
    const int chunk = team.wrapped(team.index - 2 - step);
    const int target = step == n - 2 ? at.output : at.scratch + step % 2;
    plan.copy(at.input + chunk, target, 1);
    plan.exchange(team.neighbour(1), held, 1, team.neighbour(-1), target, 1, Step::Receive::reduce);
    held = target;
  }
}

/// Segments pass through this rank: segment k comes while segment k - 1 leaves.
void pipeline(PlanBuilder& plan, int from, int to, int slot, int segments, Step::Receive receive) {
  if (from < 0 || to < 0) {
    for (int k = 0; k < segments; ++k)
      plan.exchange(to, slot + k, to < 0 ? 0 : 1, from, slot + k, from < 0 ? 0 : 1, receive);
    return;
  }
  plan.receive(from, slot, 1, receive);
  for (int k = 1; k < segments; ++k) plan.exchange(to, slot + k - 1, 1, from, slot + k, 1, receive);
  plan.send(to, slot + segments - 1, 1);
}

void chain(PlanBuilder& plan, Collective collective, int rank, int n, int root, int segments) {
  const Regions at = regions_of(collective, n, segments);
  const int distance = (rank - root + n) % n;
  const int towards = distance == 0 ? -1 : (rank + n - 1) % n;
  const int away = distance == n - 1 ? -1 : (rank + 1) % n;
  if (collective == Collective::broadcast) {
    if (distance == 0) plan.copy(at.input, at.output, segments);
    pipeline(plan, towards, away, at.output, segments, Step::Receive::store);
  } else {
    const int sum = distance == 0 ? at.output : at.scratch;
    plan.copy(at.input, sum, segments);
    pipeline(plan, away, towards, sum, segments, Step::Receive::reduce);
  }
}

}  // namespace

void ring_reduce_scatter(PlanBuilder& plan, const Team& team, const Chunks& chunks) {
  for (int step = 0; step < team.size() - 1; ++step)
    exchange_chunks(plan, team.neighbour(1), chunks[team.wrapped(team.index - 1 - step)],
                    team.neighbour(-1), chunks[team.wrapped(team.index - 2 - step)],
                    Step::Receive::reduce);
}

void ring_all_gather(PlanBuilder& plan, const Team& team, const Chunks& chunks) {
  for (int step = 0; step < team.size() - 1; ++step)
    exchange_chunks(plan, team.neighbour(1), chunks[team.wrapped(team.index - step)],
                    team.neighbour(-1), chunks[team.wrapped(team.index - step - 1)],
                    Step::Receive::store);
}

Plan ring(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  const bool is_chain = facts_of(collective).has_root;
  const int segments = n > 2 ? num_segments : 1;
  const int slots = is_chain ? segments : collective == Collective::all_reduce ? n : 1;
  const int num_scratch = collective == Collective::reduce           ? segments
                          : collective == Collective::reduce_scatter ? (n > 2 ? 2 : 0)
                                                                     : 0;
  PlanBuilder plan{collective, "ring", n, root, slots, num_scratch};
  const Regions at = regions_of(collective, n, slots);
  const std::vector<int> members = everyone(n);
  const Chunks chunks = Chunks::even(at.output, n, 1);
  for (int rank = 0; rank < n; ++rank) {
    const Team team{members, rank};
    plan.next_rank();
    if (is_chain) {
      chain(plan, collective, rank, n, root, slots);
    } else if (collective == Collective::all_reduce) {
      all_reduce(plan, team, at, chunks);
    } else if (collective == Collective::all_gather) {
      plan.copy(at.input, at.output + rank, 1);
      ring_all_gather(plan, team, chunks);
    } else {
      reduce_scatter(plan, team, at);
    }
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
