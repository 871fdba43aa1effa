// Recursive doubling and halving. Ranks meet partners at distance 1, 2, 4, ... (or the other way).
//
// recursive_doubling: all_gather: the blocks held double in each step; all_reduce: the whole buffer
//   is exchanged and added in each step.
// halving_doubling (Rabenseifner): reduce_scatter: the part of the buffer that a rank cares for
//   halves in each step; all_reduce: that, then an all_gather by doubling.
//
// Steps log2 n, 2 log2 n for halving_doubling's all_reduce. Bytes across a rank's link, for a
// buffer of S: all_gather and reduce_scatter (n-1)/n S; all_reduce log2(n) S by doubling, 2(n-1)/n
// S by halving and doubling.
//
// When n is no power of two, p the next below, the first n - p pairs of ranks fold: the even one
// gives its data to the odd one, waits, and gets the result. Two steps more, and the odd one moves
// S more each way (all_gather: one block in, the others' blocks out).
//
// Doubling wins for small buffers, halving and doubling for middle ones on powers of two.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Perform. Comput. Appl. 19 (2005).

#include "collectives/generators_internal.hpp"

#include <bit>

namespace shardmark::generators {
namespace {

/// Ranks 2i and 2i + 1, for i < folded, act as one participant, which the odd rank plays.
struct Folding {
  explicit Folding(int num_ranks)
      : n{num_ranks},
        participants{static_cast<int>(std::bit_floor(static_cast<unsigned>(num_ranks)))},
        folded{num_ranks - participants} {}
  [[nodiscard]] bool in_pair(int rank) const { return rank < 2 * folded; }
  [[nodiscard]] bool gives(int rank) const { return in_pair(rank) && rank % 2 == 0; }
  [[nodiscard]] bool takes(int rank) const { return in_pair(rank) && rank % 2 == 1; }
  [[nodiscard]] int participant(int rank) const { return in_pair(rank) ? rank / 2 : rank - folded; }
  [[nodiscard]] int rank(int participant) const {
    return participant < folded ? 2 * participant + 1 : participant + folded;
  }
  /// First of the ranks that participants from this one on stand for.
  [[nodiscard]] int first_rank(int participant) const {
    return participant < folded ? 2 * participant : participant + folded;
  }

  int n, participants, folded;
};

/// Which slots belong to participants [first, first + count).
struct Range {
  int slot, count;
};
/// A slot per participant (all_reduce), or per rank.
struct Slots {
  const Folding& folding;
  int base;
  bool per_rank;
  [[nodiscard]] Range of(int first, int count) const {
    if (!per_rank) return {base + first, count};
    const int begin = folding.first_rank(first);
    return {base + begin, folding.first_rank(first + count) - begin};
  }
};

/// Participant v ends with the sum of its own slots.
void halve(PlanBuilder& plan, const Slots& slots, int v) {
  int first = 0;
  for (int half = slots.folding.participants / 2; half > 0; half /= 2) {
    const bool upper = (v & half) != 0;
    const Range mine = slots.of(first + (upper ? half : 0), half);
    const Range theirs = slots.of(first + (upper ? 0 : half), half);
    const int partner = slots.folding.rank(v ^ half);
    plan.exchange(partner, theirs.slot, theirs.count, partner, mine.slot, mine.count,
                  Step::Receive::reduce);
    if (upper) first += half;
  }
}

/// Participant v starts with its own slots and ends with all.
void double_up(PlanBuilder& plan, const Slots& slots, int v) {
  for (int held = 1; held < slots.folding.participants; held *= 2) {
    const int first = v / held * held;
    const Range mine = slots.of(first, held);
    const Range theirs = slots.of(first ^ held, held);
    const int partner = slots.folding.rank(v ^ held);
    plan.exchange(partner, mine.slot, mine.count, partner, theirs.slot, theirs.count,
                  Step::Receive::store);
  }
}

/// `body` runs on participants, with the sum of their pair in the output.
template <class Body>
void folded_all_reduce(PlanBuilder& plan, const Folding& folding, const Regions& at, int slots,
                       int rank, const Body& body) {
  if (folding.gives(rank)) {
    plan.send(rank + 1, at.input, slots);
    plan.receive(rank + 1, at.output, slots, Step::Receive::store);
    return;
  }
  plan.copy(at.input, at.output, slots);
  if (folding.takes(rank)) plan.receive(rank - 1, at.output, slots, Step::Receive::reduce);
  body(folding.participant(rank));
  if (folding.takes(rank)) plan.send(rank - 1, at.output, slots);
}

void all_gather(PlanBuilder& plan, const Folding& folding, const Regions& at, int rank) {
  const int out = at.output;
  plan.copy(at.input, out + rank, 1);
  if (folding.gives(rank)) {
    plan.send(rank + 1, out + rank, 1);
    if (rank > 0) plan.receive(rank + 1, out, rank, Step::Receive::store);
    plan.receive(rank + 1, out + rank + 1, folding.n - rank - 1, Step::Receive::store);
    return;
  }
  if (folding.takes(rank)) plan.receive(rank - 1, out + rank - 1, 1, Step::Receive::store);
  double_up(plan, {folding, out, true}, folding.participant(rank));
  if (folding.takes(rank)) {
    if (rank > 1) plan.send(rank - 1, out, rank - 1);
    plan.send(rank - 1, out + rank, folding.n - rank);
  }
}

void reduce_scatter(PlanBuilder& plan, const Folding& folding, const Regions& at, int rank) {
  if (folding.gives(rank)) {
    plan.send(rank + 1, at.input, folding.n);
    plan.receive(rank + 1, at.output, 1, Step::Receive::store);
    return;
  }
  const int sums = at.scratch;
  plan.copy(at.input, sums, folding.n);
  if (folding.takes(rank)) plan.receive(rank - 1, sums, folding.n, Step::Receive::reduce);
  halve(plan, {folding, sums, true}, folding.participant(rank));
  if (folding.takes(rank)) plan.send(rank - 1, sums + rank - 1, 1);
  plan.copy(sums + rank, at.output, 1);
}

}  // namespace

Plan recursive_doubling(Collective collective, std::span<const int> hosts, int root) {
  const Folding folding{static_cast<int>(hosts.size())};
  PlanBuilder plan{collective, "recursive_doubling", folding.n, root, 1, 0};
  const Regions at = regions_of(collective, folding.n, 1);
  for (int rank = 0; rank < folding.n; ++rank) {
    plan.next_rank();
    if (collective == Collective::all_gather) {
      all_gather(plan, folding, at, rank);
      continue;
    }
    folded_all_reduce(plan, folding, at, 1, rank, [&](int v) {
      for (int distance = 1; distance < folding.participants; distance *= 2) {
        const int partner = folding.rank(v ^ distance);
        plan.exchange(partner, at.output, 1, partner, at.output, 1, Step::Receive::reduce);
      }
    });
  }
  return std::move(plan).finish();
}

Plan halving_doubling(Collective collective, std::span<const int> hosts, int root) {
  const Folding folding{static_cast<int>(hosts.size())};
  const bool whole = collective == Collective::all_reduce;
  const int slots = whole ? folding.participants : 1;
  PlanBuilder plan{collective, "halving_doubling", folding.n, root, slots, whole ? 0 : folding.n};
  const Regions at = regions_of(collective, folding.n, slots);
  for (int rank = 0; rank < folding.n; ++rank) {
    plan.next_rank();
    if (!whole) {
      reduce_scatter(plan, folding, at, rank);
      continue;
    }
    folded_all_reduce(plan, folding, at, slots, rank, [&](int v) {
      halve(plan, {folding, at.output, false}, v);
      double_up(plan, {folding, at.output, false}, v);
    });
  }
  return std::move(plan).finish();
}

}  // namespace shardmark::generators
