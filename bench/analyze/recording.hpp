#pragma once

#include "profiler/account.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// One rank of a recorded run with the class of each of its events. (bench::Timeline is the sink
/// that writes traces.)
struct RankRecording {
  shardmark::Timeline timeline;
  std::vector<WorkClass> classes;  ///< of timeline.events, in order
};

/// What was read: ranks by number, each once.
struct Recording {
  std::vector<RankRecording> ranks;
  int world_size{0};                  ///< what the files say, at least the number of ranks
  std::vector<int> missing_ranks;     ///< of the world, that have no file
  std::vector<std::string> warnings;  ///< of the run as a whole: several jobs, no GPU work, ...
  std::vector<std::string> errors;    ///< files that were left out or break off: exit code 1
};

/// Puts timelines in order of their ranks; gives those without one the lowest free numbers (and
/// says so if there are several), leaves out all but the first of a rank, and reports ranks of
/// different jobs, ranks whose times are in another unit, and ranks without GPU work. Traces of a
/// run of ours that was resumed follow each other; exports of several devices are nodes, whose
/// ranks count through. `errors`: of the files that could not be read. Under CommRule::automatic
/// times that cannot have been are corrected first (correct_impossible_times). Throws InputError
/// for a pattern that is no regular expression.
[[nodiscard]] Recording make_recording(std::vector<shardmark::Timeline> timelines, CommRule rule,
                                       const std::vector<std::string>& patterns,
                                       std::vector<std::string> errors);

}  // namespace shardmark::bench
