// All-to-all without detours, and in two levels.
//
// pairwise: in step k every rank sends to the one k further on and receives from the one k before.
//   n - 1 steps, (n-1)/n S bytes across a rank's link, the least possible. Wins for large blocks;
//   also does all_to_all_v.
// two_level: first ranks of equal place on their hosts exchange all blocks between their hosts,
// then
//   the ranks of a host sort them out. H - 1 + L - 1 steps on H hosts of L ranks, one message per
//   pair of hosts and rank instead of L; every block crosses the wire between hosts once and moves
//   inside a host once more. Wins for small blocks. One host, one rank per host, or hosts of
//   unequal numbers of ranks: pairwise.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH (2005); for two levels: J. L. Traeff, A. Rougier, MPI collectives and datatypes for
// hierarchical all-to-all communication, EuroMPI 2014.

#include "collectives/generators_internal.hpp"
#include "collectives/hosts_internal.hpp"

namespace shardmark::generators {
namespace {

void pairwise_steps(PlanBuilder& plan, const Regions& at, int rank, int n) {
  plan.copy(at.input + rank, at.output + rank, 1);
  for (int k = 1; k < n; ++k) {
    const int to = (rank + k) % n, from = (rank - k + n) % n;
    plan.exchange(to, at.input + to, 1, from, at.output + from, 1, Step::Receive::store);
  }
}

/// Exchanges equal parts of two buffers among a team; the own part is copied.
void exchange_parts(PlanBuilder& plan, const Team& team, int leaving, int coming, int count) {
  plan.copy(leaving + team.index * count, coming + team.index * count, count);
  for (int k = 1; k < team.size(); ++k) {
    const int to = team.wrapped(team.index + k), from = team.wrapped(team.index - k);
    plan.exchange(team.at(to), leaving + to * count, count, team.at(from), coming + from * count,
                  count, Step::Receive::store);
  }
}

void two_level_steps(PlanBuilder& plan, const Regions& at, const HostLayout& hosts, int rank) {
  const int num_hosts = hosts.num_hosts(), locals = hosts.ranks_per_host();
  const int n = num_hosts * locals;
  const int leaving = at.scratch, coming = leaving + n, turned = coming + n;
  const int host = hosts.host_of(rank), local = hosts.place_of(rank);
  // By host and place of the receiver.
  for (int h = 0; h < num_hosts; ++h)
    for (int l = 0; l < locals; ++l)
      plan.copy(at.input + hosts.member(h, l), leaving + h * locals + l, 1);
  const std::vector<int> peers = hosts.peers(local);
  exchange_parts(plan, {peers, host}, leaving, coming, locals);
  // Now by host of the sender and place of the receiver; turned around.
  for (int h = 0; h < num_hosts; ++h)
    for (int l = 0; l < locals; ++l)
      plan.copy(coming + h * locals + l, turned + l * num_hosts + h, 1);
  exchange_parts(plan, {hosts.members(host), local}, turned, coming, num_hosts);
  for (int l = 0; l < locals; ++l)
    for (int h = 0; h < num_hosts; ++h)
      plan.copy(coming + l * num_hosts + h, at.output + hosts.member(h, l), 1);
}

}  // namespace

Plan pairwise(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  PlanBuilder plan{collective, "pairwise", n, root, 1, 0};
  const Regions at = regions_of(collective, n, 1);
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    pairwise_steps(plan, at, rank, n);
  }
  return std::move(plan).finish();
}

Plan two_level(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  const HostLayout layout{hosts};
  const bool has_levels = layout.ranks_per_host() > 1 && layout.num_hosts() > 1;
  PlanBuilder plan{collective, "two_level", n, root, 1, has_levels ? 3 * n : 0};
  const Regions at = regions_of(collective, n, 1);
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    if (has_levels)
      two_level_steps(plan, at, layout, rank);
    else
      pairwise_steps(plan, at, rank, n);
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
