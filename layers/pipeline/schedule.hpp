#pragma once

// A pipeline schedule as data: for each rank an ordered list of steps. Generators (generate.hpp)
// make schedules, passes (lower.hpp) rewrite them, `validate` (validate.hpp) says what is wrong
// with one, `replay` (replay.hpp) times one without running it.
//
// A model is cut into stages 0, 1, ..., num_stages - 1; micro-batches flow forward through them and
// their gradients backward. B = I + W: the input gradient, which the stage before waits for, and
// the weight gradient, for which nobody waits (zero-bubble, arXiv 2401.10241, writes B for our I).

#include "core/types.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::pipeline {

enum class Act : std::uint8_t { F, B, I, W, send_F, recv_F, send_B, recv_B };
inline constexpr int num_acts = 8;
/// "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", as PyTorch writes them.
[[nodiscard]] std::string_view name_of(Act act);

/// `stage` is where it happens: 1SEND_F0 leaves stage 1, 2RECV_F0 brings the same to stage 2.
struct Action {
  Act act{Act::F};
  std::int32_t stage{0}, micro{0};
  auto operator<=>(const Action&) const = default;
};
/// "2F0": stage 2, forward, micro-batch 0.
[[nodiscard]] std::string to_text(const Action& action);

[[nodiscard]] constexpr bool is_compute(Act act) { return act <= Act::W; }
[[nodiscard]] constexpr bool is_send(Act act) { return act == Act::send_F || act == Act::send_B; }
[[nodiscard]] constexpr bool is_receive(Act act) {
  return act == Act::recv_F || act == Act::recv_B;
}
/// B or I: what makes the gradient for the stage before.
[[nodiscard]] constexpr bool makes_gradient(Act act) { return act == Act::B || act == Act::I; }

/// The other end of a message: 1SEND_F0 <-> 2RECV_F0, 2SEND_B0 <-> 1RECV_B0.
[[nodiscard]] Action other_end(const Action& action);

/// One action, or two that run as one: a forward with a backward of another stage or micro-batch
/// (overlapped, DualPipe), or a send with a receive (merged lowering).
struct Step {
  Action action;
  std::optional<Action> with;
  bool operator==(const Step&) const = default;
};
/// "0F3", "(0F3;1B2)OVERLAP_F_B" as PyTorch writes it, or "(0SEND_F3;0RECV_B1)SEND_RECV".
[[nodiscard]] std::string to_text(const Step& step);

/// none: compute only, messages are implied. split: every message has its SEND and its RECV; sends
/// and receives of each direction have their own lane. merged: neighbouring sends and receives are
/// one step; all messages of a rank share one lane.
enum class Lowering : std::uint8_t { none, split, merged };

struct Schedule {
  std::string name;
  int num_stages{0};
  int num_micro{0};
  /// Where a stage lives.
  std::vector<int> rank_of_stage;
  /// DualPipe holds each stage twice: the upper half of the micro-batches runs on this copy. Else
  /// empty.
  std::vector<int> rank_of_second_copy;
  Lowering lowering{Lowering::none};
  std::vector<std::vector<Step>> ranks;

  [[nodiscard]] int num_ranks() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] bool is_two_way() const { return !rank_of_second_copy.empty(); }
  [[nodiscard]] int rank_of(int stage, int micro) const {
    const bool second = is_two_way() && 2 * micro >= num_micro;
    return (second ? rank_of_second_copy : rank_of_stage)[static_cast<std::size_t>(stage)];
  }
  /// Stages that `rank` holds, ascending; with DualPipe those of both directions.
  [[nodiscard]] std::vector<int> stages_of(int rank) const;
  bool operator==(const Schedule&) const = default;
};

/// The lane a step runs on: `compute`, with split lowering pp_fwd_send, pp_fwd_recv, pp_bwd_send or
/// pp_bwd_recv, with merged lowering pp_fwd_send for every message.
[[nodiscard]] Lane lane_of(const Step& step, Lowering lowering);

/// Calls `visit(const Action&)` for each of a step's one or two actions.
template <class Visit>
void for_each_action(const Step& step, Visit&& visit) {
  visit(step.action);
  if (step.with) visit(*step.with);
}

/// PyTorch's pipeline CSV (`_PipelineScheduleRuntime`, formats compute_only and compute_comms): one
/// line per rank, one cell per step. What PyTorch has no word for stands in a first line
/// "#shardmark ...", which is written only where needed: `placement=two_way` (DualPipe: stage s is
/// on ranks s and p - 1 - s) and `lowering=merged`.
[[nodiscard]] std::string to_csv(const Schedule& schedule);
/// Reads it back. Empty cells (PyTorch's bubbles) and UNSHARD, RESHARD, REDUCE_GRAD (sharded
/// weights, which are not the schedule's business here) are left out; lines that begin with # are
/// comments. A stage lives on the rank that has most of its forwards. Throws InputError naming line
/// and cell on anything malformed; does not validate.
[[nodiscard]] Schedule parse_csv(const std::string& text);

}  // namespace shardmark::pipeline
