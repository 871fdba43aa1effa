#include "bench/collectives/dry_run.hpp"

#include "bench/collectives/workspace.hpp"
#include "bench/harness/build_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <ostream>

namespace shardmark::bench::collectives {
namespace {

constexpr const char* format = "{:<16} {:<24} {:<6} {:<6} {:>14} {:>14} {:>14} {:>14} {:>6}\n";

/// What the busiest member of the first group does for one size in one way.
struct Most {
  double sent_bytes{0};
  std::int64_t scratch_bytes{0};
  std::size_t num_ops{1};
};
Most busiest(const Series& series, const Way& way, const Plan* plan, const Series::Size& size,
             const World& world) {
  const std::int64_t block_numel = size.block_numel;
  Point point = series.point;
  point.count = size.count;
  point.size_bytes = size.size_bytes;
  const std::vector<std::int64_t> counts = uneven_counts(world.group.size, block_numel);
  Most most{.scratch_bytes = scratch_bytes_of(series, way, block_numel, world.group)};
  Group group = world.group;
  for (group.position = 0; group.position < group.size; ++group.position) {
    const Call call = sketch_call(point, block_numel, group, false, counts);
    most.sent_bytes =
        std::max(most.sent_bytes, formula_bytes(point, call, way, plan, block_numel, world.hosts));
    if (plan != nullptr)
      most.num_ops = std::max(most.num_ops, plan->steps_of(group.position).size());
  }
  return most;
}

/// A line per size and way; true if there was any.
bool print(std::ostream& out, const Series& series, const World& world) {
  bool any = false;
  const Point& point = series.point;
  for (const Way& way : series.ways) {
    const std::string& reason = series.skip_reason.empty() ? way.skip_reason : series.skip_reason;
    if (!reason.empty()) {
      out << fmt::format("{:<16} {:<24} skipped: {}\n", name_of(point.collective), way.algorithm,
                         reason);
      continue;
    }
    for (const Series::Size& size : series.sizes) {
      const Choice choice = choose(way, point, size.size_bytes);
      const Most most = busiest(series, way, choice.plan, size, world);
      const std::string name =
          choice.chosen.empty() ? way.algorithm : way.algorithm + '=' + choice.chosen;
      out << fmt::format(fmt::runtime(format), name_of(point.collective), name,
                         name_of(point.dtype), name_of(point.reduction), size.size_bytes,
                         size.count, way.is_from_file ? "" : fmt::format("{:.0f}", most.sent_bytes),
                         most.scratch_bytes, most.num_ops);
      any = true;
    }
  }
  return any;
}

}  // namespace

int dry_run(std::ostream& out, const Options& options, int world_size) {
  const World world = make_world(
      options, 0, std::vector<std::string>(static_cast<std::size_t>(world_size), "host"));
  const std::vector<Series> all = expand(options, world);
  out << fmt::format("# {}: {} ranks in groups of {} on one host; nothing is executed\n",
                     version_text(), world_size, world.group.size);
  out << fmt::format(fmt::runtime(format), "collective", "algorithm", "dtype", "redop",
                     "size_bytes", "count", "sent_bytes", "scratch_bytes", "steps");
  out << "# sent_bytes: of the rank that sends most, by formula; steps: of the rank with most\n";
  bool any = false;
  for (const Series& series : all) any = print(out, series, world) || any;
  out.flush();
  return any ? 0 : 2;
}

}  // namespace shardmark::bench::collectives
