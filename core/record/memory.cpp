#include "core/record/memory.hpp"

#include <numeric>

namespace shardmark {

std::int64_t MemoryPoint::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryTimeline memory_timeline(std::span<const MemoryRecord> records) {
  MemoryTimeline timeline;
  timeline.points.reserve(records.size());
  for (const MemoryRecord& record : records) {
    timeline.end.op_seq = record.op_seq;
    timeline.end.bytes[static_cast<std::size_t>(record.category)] += record.bytes;
    timeline.points.push_back(timeline.end);
    if (timeline.end.total() > timeline.peak.total()) timeline.peak = timeline.end;
  }
  return timeline;
}

}  // namespace shardmark
