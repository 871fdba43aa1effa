#pragma once

#include "sim/hardware.hpp"
#include "sim/replay.hpp"

namespace shardmark {

/// What op lists take on a machine: everything a measured row has, in the same terms.
struct Prediction {
  Folding folding;
  Replay replay;

  [[nodiscard]] std::size_t class_of(int rank) const {
    return static_cast<std::size_t>(folding.class_of.at(static_cast<std::size_t>(rank)));
  }
  [[nodiscard]] const RankTime& time_of(int rank) const { return replay.times[class_of(rank)]; }
  [[nodiscard]] const std::vector<TimedOp>& ops_of(int rank) const {
    return replay.ops[class_of(rank)];
  }
  [[nodiscard]] double window_us() const { return static_cast<double>(replay.window_ns) / 1e3; }
};

/// Each op costs what cost_compute and cost_comm say for `machine`, rounded to nanoseconds; one of
/// more than a day throws InputError, since a sum of such need not fit. The machine must outlive
/// it.
[[nodiscard]] OpCost cost_on(const Machine& machine);

/// Replays one list per rank; rank r is on node r / ranks_per_node.
/// Throws InputError when the machine lacks what the ops need (a peak for a dtype, a second node),
/// and Error when the lists deadlock.
[[nodiscard]] Prediction predict(std::span<const std::vector<OpRecord>> lists,
                                 const Machine& machine);
/// The same for many ranks: one list per class, of folding.representatives.
[[nodiscard]] Prediction predict(std::span<const std::vector<OpRecord>> lists,
                                 const Machine& machine, Folding folding);

}  // namespace shardmark
