// Dissemination barrier. In round k a rank tells the one 2^k further on that it has come, and hears
// from the one 2^k before. After ceil(log2 n) rounds everyone has heard of everyone. Messages are
// empty.
//
// Source: D. Hensgen, R. Finkel, U. Manber, Two algorithms for barrier synchronization, Int. J.
// Parallel Program. 17 (1988).

#include "collectives/generators_internal.hpp"

namespace shardmark::generators {

Plan dissemination(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  PlanBuilder plan{collective, "dissemination", n, root, 1, 0};
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    for (int distance = 1; distance < n; distance *= 2)
      plan.exchange((rank + distance) % n, 0, 0, (rank - distance + n) % n, 0, 0,
                    Step::Receive::store);
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
