#pragma once

#include "bench/collectives/options.hpp"
#include "collectives/choose.hpp"
#include "collectives/plan.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// The ranks as the options see them, from one rank.
struct World {
  Mesh mesh{Mesh::Degrees{}};
  Axis axis{Axis::tp};
  Group group{};           ///< this rank's
  std::vector<int> hosts;  ///< of the first group's members: equal numbers share a host
  int num_groups{1};
};
/// `hosts` names the host of each rank of the world. Throws InputError when --groups does not
/// divide the world.
[[nodiscard]] World make_world(const Options& options, int rank,
                               const std::vector<std::string>& hosts);

/// A way to do the collective. Skipped: `skip_reason` says why it does not exist.
struct Way {
  std::string algorithm;
  std::shared_ptr<const Plan> plan{};  ///< null for native, auto and patterns of send_recv
  std::string skip_reason{};
  /// auto: the table and the plans that it names for the collective.
  std::shared_ptr<const ChoiceTable> table{};
  std::map<std::string, std::shared_ptr<const Plan>, std::less<>> choices{};
  std::string notice{};      ///< auto: where it takes native for want of a row
  bool is_from_file{false};  ///< --plan
};
/// What a way does for a size: a plan, or null for native; `chosen` is auto's choice.
struct Choice {
  const Plan* plan{nullptr};
  std::string chosen{};
};
[[nodiscard]] Choice choose(const Way& way, const Point& point, std::int64_t size_bytes);

/// Sizes of one collective, type, reduction and root: what a fit goes over.
struct Series {
  Point point;  ///< without algorithm, place and size
  std::vector<Way> ways;
  struct Size {
    std::int64_t block_numel{0}, count{0}, size_bytes{0};
  };
  std::vector<Size> sizes;
  std::string skip_reason{};  ///< the whole series does not exist
};
/// All series in order. Throws InputError for what cannot be; where several things are asked for
/// (is_sweep), or all algorithms, it becomes a skipped series or way.
[[nodiscard]] std::vector<Series> expand(const Options& options, const World& world);

/// One line of a size: which way, and where its output goes.
struct Variant {
  const Way* way{nullptr};
  bool in_place{false};
};
[[nodiscard]] bool has_in_place(Collective collective);
/// The ways that exist, each out of place and then in place, if that exists.
[[nodiscard]] std::vector<Variant> variants_of(const Series& series, bool in_place);

/// all_to_all_v's blocks in elements: uneven, some empty. counts[i * n + j] go from i to j.
[[nodiscard]] std::vector<std::int64_t> uneven_counts(int group_size, std::int64_t unit);
/// The largest sum of a row or column of uneven_counts(group_size, 1).
[[nodiscard]] std::int64_t heaviest_count(int group_size);

}  // namespace shardmark::bench::collectives
