#include "profiler/cupti_records.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

namespace shardmark {

JoinedWork join(const CuptiRecords& records, std::span<const TimedOp> ops,
                std::int64_t clock_offset_ns) {
  std::unordered_map<std::uint64_t, const TimedOp*> by_external;
  for (const TimedOp& op : ops) by_external[op.external] = &op;
  std::unordered_map<std::uint32_t, const TimedOp*> by_correlation;
  for (const CuptiLink& link : records.links)
    if (const auto found = by_external.find(link.external); found != by_external.end())
      by_correlation[link.correlation] = found->second;
  JoinedWork joined;
  for (const CuptiWork& work : records.work) {
    const auto op = by_correlation.find(work.correlation);
    if (op == by_correlation.end()) {
      ++joined.num_without_op;
    } else if (work.start_ns == 0 || work.end_ns < work.start_ns) {
      ++joined.num_impossible;
    } else {
      const auto host_ns = [&](std::uint64_t time_ns) {
        return static_cast<std::int64_t>(time_ns) + clock_offset_ns;
      };
      joined.kernels.push_back({op->second->seq, op->second->lane, op->second->kind,
                                kept_name(work.name), host_ns(work.start_ns),
                                host_ns(work.end_ns)});
    }
  }
  std::ranges::stable_sort(joined.kernels, {}, &KernelRecord::start_ns);
  return joined;
}

const char* kept_name(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock{mutex};
  return names.insert(name).first->c_str();
}

ClockRelation relate(std::span<const ClockReading> readings) {
  SHARDMARK_CHECK(!readings.empty(), "clocks are related by at least one reading");
  const ClockReading& best = *std::ranges::min_element(
      readings, {}, [](const ClockReading& r) { return r.after_ns - r.before_ns; });
  const std::int64_t half_ns = (best.after_ns - best.before_ns + 1) / 2;
  return {best.before_ns + half_ns - static_cast<std::int64_t>(best.device_ns), half_ns};
}

}  // namespace shardmark
