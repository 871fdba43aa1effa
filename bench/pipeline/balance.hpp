#pragma once

#include "bench/harness/measure.hpp"
#include "bench/harness/sweep.hpp"
#include "layers/pipeline/split.hpp"

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// What embedding, block and head of a model cost, microseconds of a micro-batch's forward and
/// backward, by `cost_key`.
using MeasuredCosts = std::map<std::string, pipeline::LayerCosts>;
/// Equal for cases whose parts cost the same: all of the shape but the number of layers, type, tp.
[[nodiscard]] std::string cost_key(const Case& config);

/// Profiles a model of one block for every cost_key of the cases that can run and are to be
/// balanced: medians of a few iterations on every tp group at once, then the mean over ranks.
/// Communication inside of a part belongs to it. Collective over the world, equal on all ranks.
[[nodiscard]] MeasuredCosts measure_costs(Transport& transport, const RunnerOptions& options,
                                          const Sweep& sweep);

/// What balancing changes for one case, by measured costs.
struct Rebalanced {
  std::string what;  ///< "1f1b pp 2 m 8 tp 1"
  pipeline::LayerCosts costs;
  std::vector<std::int64_t> by_count, by_cost;
  double slowest_by_count_us{0}, slowest_by_cost_us{0};  ///< of a rank and micro-batch
  double imbalance_by_count{1}, imbalance_by_cost{1};    ///< slowest over mean
  [[nodiscard]] double gain_pct() const;  ///< by how much the slowest rank has less to do
};
/// Of a case with blocks and a schedule.
[[nodiscard]] Rebalanced rebalanced(const Case& config, const pipeline::LayerCosts& costs);
[[nodiscard]] std::string to_text(const Rebalanced& change);
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const Rebalanced> changes);

}  // namespace shardmark::bench::pp
