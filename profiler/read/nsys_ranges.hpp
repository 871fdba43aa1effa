#pragma once

#include "profiler/read/nsys_names.hpp"
#include "profiler/read/nsys_payload.hpp"
#include "profiler/timeline.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardmark::nsys {

/// A call of NCCL's API on the host: ncclAllReduce, ncclGroupStart, ...
struct NcclRange {
  Span time;
  std::int64_t thread{0};  ///< globalTid
  std::string call;        ///< without "nccl": "AllReduce"
  NcclPayload payload;
};

/// What NVTX recorded on the host.
struct Ranges {
  /// Annotations, by process; each process by row. Without NCCL's and without operators of the
  /// tensor library, of which there are thousands, each with a name of its own.
  std::map<std::uint64_t, std::vector<HostRange>> annotations;
  std::map<std::uint64_t, std::int64_t> num_rows;  ///< of all kinds, per process
  std::vector<NcclRange> nccl;                     ///< by row
  std::int64_t num_open{0};                        ///< without an end, left out
};

[[nodiscard]] Ranges read_ranges(Database& database, StringTable& strings, Names& names);

}  // namespace shardmark::nsys
