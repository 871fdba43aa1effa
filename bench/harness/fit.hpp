#pragma once

#include "bench/harness/result.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench {

/// T = flops / F + bytes / B + alpha, where flops are what one rank executes and bytes what crosses
/// its link. For a column-parallel linear with gathered output this is
/// T(p) = 2Tdh / (pF) + (p-1)/p The / B + alpha (T tokens, input d, output h, e bytes per element).
struct CostModel {
  double rate_tflops{0};     ///< F, of one rank
  double bandwidth_GBps{0};  ///< B; infinite (0 here, `has_bandwidth` false) when not resolved
  double alpha_us{0};
  bool has_bandwidth{false};
  double median_error_pct{0};  ///< median |predicted - measured| / measured
  double worst_error_pct{0};
  int rows{0};
  [[nodiscard]] double predict_us(double flops, double bytes) const;
};

/// Fits the model over the ok rows, which share a dtype, by least squares on relative errors, with
/// 1/F, 1/B and alpha non-negative (a term that would be negative is left out). Not fitted:
/// `reason` says why; it takes at least 4 rows with at least 2 different tp.
struct Fit {
  std::optional<CostModel> model;
  std::string reason;
};
[[nodiscard]] Fit fit_cost_model(std::span<const Result> results);

/// What the rows of one shape say about tp, without those that do not fit into memory.
struct ShapeSummary {
  std::string shape;  ///< "block step f32 hidden 2048 seq 1024 batch 1"
  int fastest_tp{1};  ///< lowest p50 over all variants of that tp
  double fastest_us{0};
  int best_mfu_tp{1};
  double best_mfu_pct{0};
  /// "tp 2 is 1.72x as fast as tp 1", "no gain beyond tp 2": the measured crossover.
  std::string crossover;
};
[[nodiscard]] std::vector<ShapeSummary> summarize_shapes(std::span<const Result> results);

}  // namespace shardmark::bench
