// Bruck. In step k a rank talks to those at distance 2^k on either side, whatever n is.
//
// all_gather: block j of a rank's scratch is that of the rank j further on; the blocks held double
//   in each step, the last step fills up. At the end they are turned into place.
// all_to_all: block j of scratch is bound for the rank j further on; step k moves all blocks whose
// j
//   has bit k, packed into one message. A block goes through up to log2 n ranks.
//
// Steps ceil(log2 n). Bytes across a rank's link: all_gather (n-1) blocks; all_to_all about
// n/2 log2 n blocks, half the buffer per step.
//
// Wins for small blocks, where steps count; all_to_all pays with bytes and copies.
//
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, Efficient algorithms for
// all-to-all communications in multiport message-passing systems, IEEE TPDS 8 (1997).

#include "collectives/generators_internal.hpp"

#include <algorithm>

namespace shardmark::generators {
namespace {

void all_gather(PlanBuilder& plan, const Regions& at, int rank, int n) {
  const int held = at.scratch;
  plan.copy(at.input, held, 1);
  for (int distance = 1; distance < n; distance *= 2) {
    const int count = std::min(distance, n - distance);
    plan.exchange((rank - distance + n) % n, held, count, (rank + distance) % n, held + distance,
                  count, Step::Receive::store);
  }
  plan.copy(held, at.output + rank, n - rank);
  if (rank > 0) plan.copy(held + n - rank, at.output, rank);
}

/// Copies the blocks whose number has `bit` between scratch and a packed buffer.
int pack(PlanBuilder& plan, int blocks, int packed, int n, int bit, bool unpack) {
  int count = 0;
  for (int first = bit; first < n; first += 2 * bit) {
    const int run = std::min(bit, n - first);
    if (unpack)
      plan.copy(packed + count, blocks + first, run);
    else
      plan.copy(blocks + first, packed + count, run);
    count += run;
  }
  return count;
}

void all_to_all(PlanBuilder& plan, const Regions& at, int rank, int n) {
  const int blocks = at.scratch, leaving = blocks + n, coming = leaving + n / 2;
  plan.copy(at.input + rank, blocks, n - rank);
  if (rank > 0) plan.copy(at.input, blocks + n - rank, rank);
  for (int bit = 1; bit < n; bit *= 2) {
    const int count = pack(plan, blocks, leaving, n, bit, false);
    plan.exchange((rank + bit) % n, leaving, count, (rank - bit + n) % n, coming, count,
                  Step::Receive::store);
    pack(plan, blocks, coming, n, bit, true);
  }
  for (int j = 0; j < n; ++j) plan.copy(blocks + j, at.output + (rank - j + n) % n, 1);
}

}  // namespace

Plan bruck(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  const bool gathers = collective == Collective::all_gather;
  // No bit is set in more than half of the numbers below n.
  PlanBuilder plan{collective, "bruck", n, root, 1, gathers ? n : n + 2 * (n / 2)};
  const Regions at = regions_of(collective, n, 1);
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    if (gathers)
      all_gather(plan, at, rank, n);
    else
      all_to_all(plan, at, rank, n);
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
