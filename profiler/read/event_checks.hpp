#pragma once

#include "profiler/timeline.hpp"

#include <string>
#include <vector>

namespace shardmark {

/// A sentence for each way in which device events, sorted by start, look wrong: no or negative
/// duration, running into the next one of the stream, starting before their launch, one that lasts
/// longer than all others span, times that seem to be in two units. Nothing is changed: what such
/// events are worth is for the reader to judge. What cannot have been is impossible_times's.
[[nodiscard]] std::vector<std::string> check_events(const Timeline& timeline);

}  // namespace shardmark
