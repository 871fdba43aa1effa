#pragma once

// How one rank runs its part of a schedule: which buffers each action uses, and where a lane has to
// wait for another. A pure function of the schedule, so that buffers and fences can be tested, and
// so that running is walking down a list.

#include "layers/pipeline/schedule.hpp"

#include <vector>

namespace shardmark::pipeline {

/// Buffers of a micro-batch in a stage: indices among the rank's buffers of that stage, -1 for
/// none.
struct Held {
  int x{-1};      ///< the stage's input: from its RECV_F (or F) to its I (or B)
  int state{-1};  ///< activations, result, input gradient: from F to W (or B) and the last SEND
  int dy{-1};     ///< the result's gradient: from RECV_B (or the next stage's I or B) to W (or B)
};

/// One computation, one message, or a send with a receive.
struct Instruction {
  Step step;
  Lane lane{Lane::compute};
  Held held{};    ///< of step.action
  Held with{};    ///< of step.with
  Held before{};  ///< F, B, I: of the micro-batch in the stage before, if that is on this rank too
  /// What the lane waits for first: event 0 is the start of the iteration on the compute lane,
  /// event i + 1 the end of instruction i.
  std::vector<int> awaits{};
  bool signals{false};  ///< somebody waits for its end
};

struct RankPlan {
  std::vector<Instruction> instructions;
  bool signals_start{false};
  std::vector<int> awaits_at_end;  ///< by the compute lane: then every lane has ended
  std::vector<Held> num_buffers;   ///< [stage] of each kind; 0 of what the stage does not need
};

/// States are as few as the order of the rank's steps allows; of x and dy there is one more, so
/// that a message can arrive during the computation that still uses the one before. Of several free
/// buffers the one free for longest is taken: a message posted early waits for little. Two lanes
/// wait for each other only where they meet at a buffer, and never for what they know to be done.
/// An iteration's buffers are its own from its start to its end, on the compute lane.
///
/// The schedule must be valid, and lowered if it has messages. Linear in the number of steps.
[[nodiscard]] RankPlan plan_rank(const Schedule& schedule, int rank);

}  // namespace shardmark::pipeline
