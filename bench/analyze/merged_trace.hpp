#pragma once

#include "bench/analyze/recording.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Writes all ranks' device events, their launches, steps and host ranges as one Chrome trace for
/// Perfetto, which our own reader takes for a trace of shardmark and which gives the same figures:
/// one process per rank, threads for steps, ranges, launches, compute, communication by the purpose
/// of its group (by stream if that is not known) and copies, each as often as its events overlap.
/// Times start at 0 and stay whole nanoseconds; calls of communication keep their metadata. Of a
/// launch only the start is known.
///
/// `offset_ns`: to be added to the times of each rank of the recording; empty: nothing. `path` is
/// without or with the ".gz" that the file gets where zlib is built in. Throws InputError if it
/// cannot be written.
void write_merged_trace(const Recording& recording, const std::vector<std::int64_t>& offset_ns,
                        const std::string& path,
                        const std::map<std::string, std::string>& axis_of = {});

}  // namespace shardmark::bench
