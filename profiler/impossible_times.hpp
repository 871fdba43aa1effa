#pragma once

#include "profiler/timeline.hpp"

#include <string>
#include <vector>

namespace shardmark {

/// A sentence for each way in which times of device events cannot have been, with the time that it
/// is about. Traces of ours are believed: their lanes may hold several messages at once.
///   - An event that ends after a later one of its stream (queue_of) has begun and ended: work of a
///     stream runs in order, so its duration is wrong. (A later one that begins a little early and
///     ends later is usual where launches are programmatic.)
///   - Events at time 0 when all others begin more than a second later: their times could not be
///     collected (CUPTI then gives 0), and the trace would begin at 0.
[[nodiscard]] std::vector<std::string> impossible_times(const Timeline& timeline);

/// Cuts the former where the later one begins, leaves out the latter, and says so in
/// Timeline::warnings. To be done before `classify` under CommRule::automatic; the other rules take
/// files as they are.
void correct_impossible_times(Timeline& timeline);

}  // namespace shardmark
