#pragma once

#include "profiler/account.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// One rank of a recorded run with the class of each of its events.
struct RankRecording {
  Timeline timeline;
  std::vector<WorkClass> classes;  ///< of timeline.events, in order
};

/// What was read: ranks by number, each once.
struct Recording {
  std::vector<RankRecording> ranks;
  int world_size{0};                  ///< what the files say, at least the number of ranks
  std::vector<int> missing_ranks;     ///< of the world, that have no file
  std::vector<std::string> warnings;  ///< of the run as a whole: duplicate ranks, several jobs, ...
  std::vector<std::string> errors;    ///< files that were left out or break off: exit code 1
};

/// Puts timelines in order of their ranks; gives those without one the lowest free numbers (and
/// says so), leaves out all but the first of a rank, and reports ranks of different jobs.
[[nodiscard]] Recording make_recording(std::vector<Timeline> timelines, CommRule rule,
                                       const std::vector<std::string>& patterns,
                                       std::vector<std::string> errors);

}  // namespace shardmark::bench
