// GPipe, 1F1B, interleaved 1F1B: whole backwards.
//
// GPipe: all forwards, then all backwards. Bubble (p - 1)(F + B); every rank holds all m
// activations. Wins where memory does not matter: nothing alternates. Source: GPipe, arXiv
// 1811.06965 section 2.3.
//
// 1F1B: rank r begins with p - r forwards, then backwards and forwards take turns. The same bubble,
// but rank r holds min(m, p - r) activations only.
// Source: PipeDream-Flush in Megatron-LM, arXiv 2104.04473 section 2.2.1.
//
// Interleaved: rank r holds v chunks, stages r, p + r, ...; the bubble is (p - 1)(F + B) / v, for v
// times the messages and more activations: p v + p - 1 chunks on rank 0. Micro-batches pass a chunk
// in groups of p (or `group`) before the next chunk has its turn. Source: arXiv 2104.04473
// section 2.2.2; group and warm-up as in Megatron-LM's microbatch_group_size_per_vp_stage.

#include "layers/pipeline/generators_internal.hpp"

#include <algorithm>

namespace shardmark::pipeline::generators {
namespace {

/// The k-th forward of a rank: which chunk, which micro-batch. Backwards go through chunks the
/// other way round.
struct Turn {
  int chunk, micro;
};

std::vector<Turn> turns_of(int micro, int chunks, int group) {
  std::vector<Turn> turns;
  for (int first = 0; first < micro; first += group)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int m = first; m < std::min(micro, first + group); ++m) turns.push_back({chunk, m});
  return turns;
}

/// `warm_up` forwards, then one forward and one backward in turn, then the backwards that are left.
void alternate(std::vector<Step>& steps, int rank, int ranks, int chunks,
               std::span<const Turn> turns, int warm_up) {
  const int total = static_cast<int>(turns.size());
  const auto forward = [&](int k) {
    const Turn turn = turns[static_cast<std::size_t>(k)];
    steps.push_back({{Act::F, turn.chunk * ranks + rank, turn.micro}, {}});
  };
  const auto backward = [&](int k) {
    const Turn turn = turns[static_cast<std::size_t>(k)];
    steps.push_back({{Act::B, (chunks - 1 - turn.chunk) * ranks + rank, turn.micro}, {}});
  };
  const int warm = std::min(total, warm_up);
  for (int k = 0; k < warm; ++k) forward(k);
  for (int k = warm; k < total; ++k) {
    forward(k);
    backward(k - warm);
  }
  for (int k = total - warm; k < total; ++k) backward(k);
}

}  // namespace

Schedule gpipe(const Request& request) {
  Schedule schedule = empty_loop("gpipe", request.ranks, 1, request.micro);
  for (int rank = 0; rank < request.ranks; ++rank)
    for (const Act act : {Act::F, Act::B})
      for (int m = 0; m < request.micro; ++m)
        schedule.ranks[static_cast<std::size_t>(rank)].push_back({{act, rank, m}, {}});
  return schedule;
}

Schedule one_f_one_b(const Request& request) {
  Schedule schedule = empty_loop("1f1b", request.ranks, 1, request.micro);
  const auto turns = turns_of(request.micro, 1, request.micro);
  for (int rank = 0; rank < request.ranks; ++rank)
    alternate(schedule.ranks[static_cast<std::size_t>(rank)], rank, request.ranks, 1, turns,
              request.ranks - 1 - rank);
  return schedule;
}

Schedule interleaved(const Request& request) {
  const int p = request.ranks, v = num_chunks(ScheduleKind::interleaved, request);
  const int group = request.group > 0 ? request.group : p;
  Schedule schedule = empty_loop("interleaved", p, v, request.micro);
  const auto turns = turns_of(request.micro, v, group);
  for (int rank = 0; rank < p; ++rank)
    alternate(schedule.ranks[static_cast<std::size_t>(rank)], rank, p, v, turns,
              2 * (p - 1 - rank) + (v - 1) * group);
  return schedule;
}

}  // namespace shardmark::pipeline::generators
