#pragma once

#include "bench/harness/measure.hpp"
#include "bench/harness/sweep.hpp"
#include "layers/pipeline/replay.hpp"
#include "layers/pipeline/split.hpp"

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// What the parts of a model and a message between two ranks take, microseconds of a micro-batch.
struct PartTimes {
  pipeline::StageTimes embedding{0, 0, 0}, block{}, head{0, 0, 0};
  double message{0};
  /// Forward and backward together.
  [[nodiscard]] pipeline::LayerCosts costs() const;
  /// Of stages with these blocks.
  [[nodiscard]] pipeline::Durations durations(std::span<const std::int64_t> blocks) const;
};
[[nodiscard]] std::string to_text(const PartTimes& times);
/// By `cost_key`.
using MeasuredTimes = std::map<std::string, PartTimes>;
/// Equal for cases whose parts cost the same: all of the shape but the number of layers, type, tp,
/// sequence parallelism, recomputation.
[[nodiscard]] std::string cost_key(const Case& config);

/// Profiles a model of one block for every cost_key of the cases that can run: medians of a few
/// iterations on every tp group at once, then the mean over ranks. Communication inside of a part
/// belongs to it. A message is the fastest of a few while all ranks send to the next: other load
/// only adds to it. Collective over the world, equal on all ranks.
[[nodiscard]] MeasuredTimes measure_times(Transport& transport, const RunnerOptions& options,
                                          const Sweep& sweep, Engine& engine);

/// What balancing changes for one case, by measured costs.
struct Rebalanced {
  std::string what;  ///< "1f1b pp 2 m 8 tp 1"
  pipeline::LayerCosts costs;
  std::vector<std::int64_t> by_count, by_cost;
  double slowest_by_count_us{0}, slowest_by_cost_us{0};  ///< of a rank and micro-batch
  double imbalance_by_count{1}, imbalance_by_cost{1};    ///< slowest over mean
  [[nodiscard]] double gain_pct() const;  ///< by how much the slowest rank has less to do
};
/// Of a case that can run.
[[nodiscard]] Rebalanced rebalanced(const Case& config, const pipeline::LayerCosts& costs);
[[nodiscard]] std::string to_text(const Rebalanced& change);
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const Rebalanced> changes);

}  // namespace shardmark::bench::pp
