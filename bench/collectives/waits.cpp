#include "bench/collectives/waits.hpp"

#include "bench/harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace shardmark::bench::collectives {
namespace {

constexpr double pass_us = 20'000;  ///< about this long per pass, delays not counted
constexpr double fewest_calls = 11, most_calls = 51;

void delay(double duration_us) {
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(duration_us * 1e3);
  while (now_ns() < end) {
  }
}

/// Every rank's stamps and the ranks it waits for, on all ranks.
std::vector<Wait> gather_waits(const std::vector<Stamp>& mine, const World& world,
                               Transport& transport) {
  std::string packed(mine.size() * sizeof(Stamp), '\0');
  std::memcpy(packed.data(), mine.data(), packed.size());
  std::vector<std::vector<Stamp>> stamps;
  std::vector<std::vector<int>> members;
  for (const std::string& bytes : transport.gather(packed)) {
    const Group group = world.mesh.group(static_cast<int>(stamps.size()), world.axis);
    std::vector<int>& ranks = members.emplace_back();
    for (int member = 0; member < group.size; ++member) ranks.push_back(group.world_rank(member));
    std::vector<Stamp>& theirs = stamps.emplace_back(bytes.size() / sizeof(Stamp));
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return split_waits(stamps, members);
}

}  // namespace

std::vector<Wait> split_waits(std::span<const std::vector<Stamp>> stamps,
                              std::span<const std::vector<int>> members) {
  std::vector<Wait> waits;
  for (std::size_t rank = 0; rank < stamps.size(); ++rank) {
    std::vector<double> wait_us, transfer_us;
    for (std::size_t call = 0; call < stamps[rank].size(); ++call) {
      const Stamp& own = stamps[rank][call];
      std::int64_t last_ns = own.arrival_ns;
      for (const int member : members[rank])
        last_ns = std::max(last_ns, stamps[static_cast<std::size_t>(member)][call].arrival_ns);
      wait_us.push_back(static_cast<double>(last_ns - own.arrival_ns) / 1e3);
      transfer_us.push_back(static_cast<double>(own.end_ns - last_ns) / 1e3);
    }
    waits.push_back({static_cast<int>(rank), median(wait_us), median(transfer_us)});
  }
  return waits;
}

void measure_waits(Row& row, const Runnable& runnable, const Options& options, const World& world,
                   const Clocks& clocks, Workspace& workspace, Transport& transport) {
  const double wanted = std::clamp(pass_us / std::max(row.time.p50, 1.0), fewest_calls, most_calls);
  // Times are the same on all ranks, since samples are.
  const int count = static_cast<int>(std::floor(wanted));
  const int skew_rank = options.skew_rank < 0 ? transport.size() - 1 : options.skew_rank;
  const std::int64_t offset = clocks.offset_ns[static_cast<std::size_t>(transport.rank())];
  const auto stamped_call = [&](double pause_us) {
    transport.barrier();
    delay(pause_us);
    const std::int64_t arrival = now_ns();
    workspace.run(runnable, 1, false);
    return Stamp{arrival + offset, now_ns() + offset};
  };
  row.skew_us = options.skew_us;
  std::vector<Stamp> unskewed, skewed;
  for (int call = 0; call < count; ++call) {
    // The calls to compare with, in turn: all ranks pause, since caches cool down in a pause
    // whoever is late.
    if (options.skew_us > 0) unskewed.push_back(stamped_call(options.skew_us));
    skewed.push_back(stamped_call(transport.rank() == skew_rank ? options.skew_us : 0));
  }
  if (options.skew_us > 0) row.waits_unskewed = gather_waits(unskewed, world, transport);
  row.waits = gather_waits(skewed, world, transport);
}

}  // namespace shardmark::bench::collectives
