#pragma once

// Time of a communication once all who take part have come, in closed form. A message of S bytes
// takes a + S/B on a link (a latency, B bandwidth). A group has n members on k nodes, at most g on
// one; a, B are those inside a node and a', B' those between nodes. Each rank has links of its own,
// so the g members of a node leave it over g of them: what all members pass on crosses to the next
// node at min(B, gB'), B for g > 1 only; below this is W, on one node W = B.
//
// With S the whole (all members' blocks, as nccl-tests counts) and lg = ceil(log2):
//
//   ring          all_gather, reduce_scatter   (n-k)a + (k-1)a' + (n-1)/n S/W
//                 all_reduce                   twice that
//                 broadcast, reduce            (n-k)a + (k-1)a' + S/W, a pipelined chain
//   tree          broadcast, reduce            (g-1)a + lg(k)a' + S/W, a chain in each node
//                 all_reduce                   twice that, two trees that each carry half
//   recursive     all_gather, reduce_scatter   lg(g)a + lg(k)a' + (n-1)/n S/W
//                 all_reduce                   twice that: halving, then doubling
//   hierarchical  all_gather, reduce_scatter   (g-1)(a + S/(gB)) + (k-1)(a' + S/(nB')), n = gk
//                 all_reduce                   twice that
//   pairs         all_to_all(_v), gather, scatter: one message per peer, one after another
//   dissemination barrier                      lg(g)a + lg(k)a'
//
// A collective's own latency and bandwidth in the machine file replace the link's. The latencies
// follow a chain of data through the ring, and trees are chains inside a node, as in NCCL's tuning
// model (src/graph/tuning.cc). Reduction inside switches (NVLS, SHARP) is not modelled.
// Sources: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations
// in MPICH"; Sanders, Speck, Traeff 2009, "Two-tree algorithms".

#include "core/ops.hpp"
#include "sim/hardware.hpp"

#include <optional>

namespace shardmark {

/// Where the members of a group are.
struct Layout {
  int num_members{1};  ///< n
  int num_nodes{1};    ///< k
  int per_node{1};     ///< g, of the node that has most
};
[[nodiscard]] Layout layout_of(const Machine& machine, const Group& group);

/// Nothing where the algorithm cannot do the op: a tree gathers nothing, and a hierarchy takes
/// several nodes with the same number of members, at least two.
[[nodiscard]] std::optional<double> collective_us(const Machine& machine, const Op& op,
                                                  CommAlgorithm algorithm);

/// Microseconds of a communication, its overhead included: of the fastest of the machine's
/// algorithms, and of a SendRecv what its message takes that is sent (0 if none is). A group of one
/// takes no time. Throws InputError when the group spans nodes and the machine has one only.
[[nodiscard]] double communication_us(const Machine& machine, const Op& op);

}  // namespace shardmark
