// Hierarchical, pipelined: the all_reduce of hierarchical.cpp on `num_segments` segments, so that
// the links between hosts never wait for the work inside a host.
//
// Stage t reduces segment t inside the host and shares segment t - 2 there, while segment t - 1
// goes between the hosts. A step of the inside and a step of the outside become two: one sends
// inside and receives from outside, the other sends to the outside and receives inside. Neighbours
// (in the host, and at the same place of the next host) take the two in opposite order, like a
// chessboard. So each link is busy in both directions all the time, although a rank does one
// exchange at a time.
//
// Bytes are those of hierarchical. Steps: hierarchical's 2(L-1) + 2(H-1), times `num_segments`,
// with an exchange split in two where both kinds meet; so it loses for small buffers.
//
// Wins with several ranks per host for large buffers, when the network is slower than the host.
// Hosts must have equal numbers of ranks, otherwise it is hierarchical.
//
// Source: pipelining over the levels of a hierarchy as in NCCL's channels and in X. Luo et al.,
// HAN: a hierarchical autotuned collective communication framework, CLUSTER 2020; the order of the
// halves is ours.

#include "collectives/generators_internal.hpp"
#include "collectives/hosts_internal.hpp"

#include <algorithm>

namespace shardmark::generators {
namespace {

constexpr int num_segments = 32;

using Pattern = void (*)(PlanBuilder&, const Team&, const Chunks&);

/// The exchanges of `pattern` for one member.
std::vector<Step> steps_of(Pattern pattern, const Team& team, const Chunks& chunks) {
  PlanBuilder steps{Collective::all_reduce, "", 1, 0, 1, 0};
  steps.next_rank();
  pattern(steps, team, chunks);
  return std::move(steps).finish().steps;
}

void append(std::vector<Step>& all, const std::vector<Step>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void send_and_receive(PlanBuilder& plan, const Step& out, const Step& in) {
  plan.exchange(out.to, out.source, out.count, in.from, in.target, in.count_in, in.receive);
}

/// Both lists in one; `outside_first` differs between neighbours.
void interleave(PlanBuilder& plan, const std::vector<Step>& inside,
                const std::vector<Step>& outside, bool outside_first) {
  for (std::size_t i = 0; i < std::max(inside.size(), outside.size()); ++i) {
    if (i >= inside.size() || i >= outside.size()) {
      const Step& step = i < inside.size() ? inside[i] : outside[i];
      send_and_receive(plan, step, step);
    } else if (outside_first) {
      send_and_receive(plan, outside[i], inside[i]);
      send_and_receive(plan, inside[i], outside[i]);
    } else {
      send_and_receive(plan, inside[i], outside[i]);
      send_and_receive(plan, outside[i], inside[i]);
    }
  }
}

}  // namespace

Plan hierarchical_pipelined(Collective collective, std::span<const int> hosts, int root) {
  const int n = static_cast<int>(hosts.size());
  const HostLayout layout{hosts};
  const int locals = layout.ranks_per_host(), num_hosts = layout.num_hosts();
  if (locals == 0) {
    Plan plan = hierarchical(collective, hosts, root);
    plan.algorithm = "hierarchical_pipelined";
    return plan;
  }
  const int segment = locals * num_hosts;
  const int slots = num_segments * segment;
  PlanBuilder plan{collective, "hierarchical_pipelined", n, root, slots, 0};
  const Regions at = regions_of(collective, n, slots);
  for (int rank = 0; rank < n; ++rank) {
    plan.next_rank();
    plan.copy(at.input, at.output, slots);
    const int host = layout.host_of(rank), place = layout.place_of(rank);
    const std::vector<int> peers = layout.peers(place);
    const Team inside_team{layout.members(host), place}, outside_team{peers, host};
    for (int stage = 0; stage < num_segments + 2; ++stage) {
      const auto is_segment = [](int i) { return i >= 0 && i < num_segments; };
      const auto shards = [&](int i) {
        return Chunks::even(at.output + i * segment, locals, num_hosts);
      };
      std::vector<Step> inside, outside;
      if (is_segment(stage)) inside = steps_of(ring_reduce_scatter, inside_team, shards(stage));
      if (is_segment(stage - 2))
        append(inside, steps_of(ring_all_gather, inside_team, shards(stage - 2)));
      if (is_segment(stage - 1)) {
        const int first = at.output + (stage - 1) * segment + place * num_hosts;
        const Chunks parts = Chunks::even(first, num_hosts, 1);
        outside = steps_of(ring_reduce_scatter, outside_team, parts);
        append(outside, steps_of(ring_all_gather, outside_team, parts));
      }
      interleave(plan, inside, outside, (host + place) % 2 != 0);
    }
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
