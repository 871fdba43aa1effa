#pragma once

#include "profiler/read/nsys_ranges.hpp"
#include "profiler/read/nsys_work.hpp"
#include "profiler/timeline.hpp"

#include <vector>

namespace shardmark::nsys {

/// What NCCL's ranges say of the kernels launched within them. A kernel belongs to the call that
/// its launch falls into on the same thread; within a group of calls they are launched by the
/// outermost ncclGroupEnd, one kernel per call or one for all.
struct Calls {
  std::vector<CommunicationCall> calls;
  std::vector<ProcessGroup> groups;  ///< communicators; their ranks are not in the file
};

/// Sets DeviceEvent::call of NCCL's kernels. Sizes are in bytes ("Byte"), as NCCL gives them.
[[nodiscard]] Calls find_calls(Work& work, std::vector<NcclRange> ranges, const Names& names);

}  // namespace shardmark::nsys
