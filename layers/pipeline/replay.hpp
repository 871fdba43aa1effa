#pragma once

// Times a schedule without running it: every step starts when its rank's lane is free and its
// inputs have arrived.

#include "layers/pipeline/schedule.hpp"

#include <vector>

namespace shardmark::pipeline {

/// Durations of one stage's actions, in any one unit; the whole backward B takes I + W.
struct StageTimes {
  double forward{1}, backward_input{1}, backward_weight{1};
  /// A forward of this stage overlapped with a whole backward; negative: their sum.
  double overlapped{-1};
};

struct Durations {
  std::vector<StageTimes> stages{StageTimes{}};  ///< one for each stage, or one for all of them
  double communication{0};  ///< of one message between two ranks; occupies its lanes, not compute

  [[nodiscard]] const StageTimes& of(int stage) const {
    return stages.size() == 1 ? stages.front() : stages[static_cast<std::size_t>(stage)];
  }
};
/// How long a step computes; 0 for messages.
[[nodiscard]] double duration_of(const Step& step, const Durations& durations);

struct Span {
  double start{0}, end{0};
};

struct RankUse {
  double start{0}, end{0};  ///< first and last compute step
  double busy{0};           ///< sum of compute steps
  int peak_in_flight{0};    ///< activations held at once, from a forward to its W or B
  [[nodiscard]] double own_bubble() const { return end - start - busy; }
};

/// Bubbles are of the common window, first start to last end on any rank, the same for all ranks;
/// only `own_bubble` is of the rank's own span, where some zero-bubble schedules claim their zero.
struct Timeline {
  std::vector<std::vector<Span>> steps;  ///< [rank][step]
  std::vector<RankUse> ranks;
  double window{0};

  [[nodiscard]] double bubble(int rank) const {
    return window - ranks[static_cast<std::size_t>(rank)].busy;
  }
  [[nodiscard]] double mean_bubble() const;      ///< over ranks
  [[nodiscard]] double bubble_of_ideal() const;  ///< mean bubble over mean busy time
  [[nodiscard]] double bubble_of_total() const;  ///< mean bubble over window
  [[nodiscard]] int peak_in_flight() const;      ///< of the rank that holds most
};

/// The schedule may be lowered or not; sends are rendezvous. Throws Error if it does not run to its
/// end, so validate one from a file first. Linear in the number of actions.
[[nodiscard]] Timeline replay(const Schedule& schedule, const Durations& durations = {});

}  // namespace shardmark::pipeline
