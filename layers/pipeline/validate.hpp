#pragma once

#include "layers/pipeline/schedule.hpp"

#include <string>
#include <vector>

namespace shardmark::pipeline {

struct Problem {
  int rank{0};
  int step{-1};  ///< index into the rank's list; -1: something that is not in the list
  std::string text;
};
/// "rank 1 step 3: 1B0 comes before its forward".
[[nodiscard]] std::string to_text(const Problem& problem);

/// What is wrong with a schedule, none if it is right: every forward and backward of every stage
/// and micro-batch happens once, on its rank, in an order its inputs allow; a lowered schedule has
/// one send and one receive for each message between two ranks, in the same order on both; and
/// nothing deadlocks when sends wait for their receives (the cycle is told). At most 20 problems,
/// linear in the number of actions.
[[nodiscard]] std::vector<Problem> validate(const Schedule& schedule);

}  // namespace shardmark::pipeline
