#include "core/cuda/op_times.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace shardmark::cuda {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void OpTimes::begin() {
  begin_ns_ = now_ns();
  origin_ = device_.mark(Lane::compute, true);
  while (!device_.is_complete(origin_)) {
  }
  origin_ns_ = now_ns();
  has_begun_ = true;
}

void OpTimes::collect(std::vector<KernelRecord>& records) {
  const auto host_ns = [&](Device::Mark mark) {
    return origin_ns_ + device_.ns_between(origin_, mark);
  };
  for (const Interval& i : intervals_)
    records.push_back({i.op_seq, i.lane, i.kind, i.name, host_ns(i.from), host_ns(i.to)});
  clear();
}

void OpTimes::clear() {
  intervals_.clear();
  has_begun_ = false;
}

std::int64_t idle_ns_of(std::span<const KernelRecord> records, std::int64_t begin_ns,
                        std::int64_t end_ns) {
  std::vector<std::pair<std::int64_t, std::int64_t>> busy;
  for (const KernelRecord& record : records) busy.emplace_back(record.start_ns, record.end_ns);
  std::ranges::sort(busy);
  std::int64_t idle_ns = 0, reached_ns = begin_ns;
  for (const auto& [start_ns, stop_ns] : busy) {
    idle_ns += std::max<std::int64_t>(std::min(start_ns, end_ns) - reached_ns, 0);
    reached_ns = std::max(reached_ns, stop_ns);
  }
  return idle_ns + std::max<std::int64_t>(end_ns - reached_ns, 0);
}

}  // namespace shardmark::cuda
