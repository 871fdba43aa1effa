#pragma once

#include "bench/analyze/recording.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// A resumed run has a trace per launch (trace.json.gz, trace-2.json.gz, ...), each from time 0.
/// Puts those of a rank behind each other, by the same distance on all ranks.
void join_resumed(std::vector<shardmark::Timeline>& timelines);

/// A sentence for each rank that seems to be of another job than the first: its world has another
/// size or a group of another name, or its time has nothing in common with that of the first
/// although no collectives align their clocks.
[[nodiscard]] std::vector<std::string> different_jobs(const Recording& recording);

/// A sentence for each rank that lasts about 1000 times longer or shorter than the others, which
/// means milliseconds, microseconds and nanoseconds next to each other.
[[nodiscard]] std::vector<std::string> different_units(const std::vector<RankRecording>& ranks);

}  // namespace shardmark::bench
