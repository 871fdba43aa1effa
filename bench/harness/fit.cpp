#include "bench/harness/fit.hpp"

#include "bench/harness/statistics.hpp"
#include "bench/harness/sweep.hpp"
#include "bench/harness/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace shardmark::bench {
namespace {

constexpr std::size_t num_terms = 3;  // flops, bytes, constant
using Terms = std::array<double, num_terms>;

/// Solves the normal equations of the used terms by Gaussian elimination; unused ones are 0.
std::optional<Terms> least_squares(std::span<const Terms> rows, const std::array<bool, 3>& used) {
  std::array<std::array<double, num_terms + 1>, num_terms> a{};
  for (std::size_t i = 0; i < num_terms; ++i) {
    for (const Terms& row : rows) {
      for (std::size_t j = 0; j < num_terms; ++j)
        if (used[i] && used[j]) a[i][j] += row[i] * row[j];
      if (used[i]) a[i][num_terms] += row[i];  // relative fit: the right-hand side is 1
    }
    if (!used[i]) a[i][i] = 1;
  }
  for (std::size_t column = 0; column < num_terms; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < num_terms; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    if (std::abs(a[pivot][column]) < 1e-12) return std::nullopt;
    std::swap(a[column], a[pivot]);
    for (std::size_t row = 0; row < num_terms; ++row) {
      if (row == column) continue;
      const double factor = a[row][column] / a[column][column];
      for (std::size_t k = column; k <= num_terms; ++k) a[row][k] -= factor * a[column][k];
    }
  }
  Terms solution{};
  for (std::size_t i = 0; i < num_terms; ++i) solution[i] = a[i][num_terms] / a[i][i];
  return solution;
}

double squared_error(std::span<const Terms> rows, const Terms& x) {
  double error = 0;
  for (const Terms& row : rows) {
    double predicted = 0;
    for (std::size_t i = 0; i < num_terms; ++i) predicted += row[i] * x[i];
    error += (predicted - 1) * (predicted - 1);
  }
  return error;
}

/// The best solution without negative terms, over all subsets that keep the first term.
std::optional<Terms> non_negative(std::span<const Terms> rows) {
  std::optional<Terms> best;
  for (const std::array<bool, 3> used : {std::array{true, true, true},
                                         {true, true, false},
                                         {true, false, true},
                                         {true, false, false}}) {
    const auto solution = least_squares(rows, used);
    if (!solution || std::ranges::min(*solution) < 0) continue;
    if (!best || squared_error(rows, *solution) < squared_error(rows, *best)) best = solution;
  }
  return best;
}

std::string describe_crossover(const std::map<int, const Result*>& fastest) {
  if (fastest.size() < 2) return "one tp only, no crossover to see";
  std::string text;
  int previous_tp = 0;
  double previous_us = 0;
  for (const auto& [tp, result] : fastest) {
    const double time_us = result->time.p50;
    if (previous_tp > 0) {
      if (!text.empty()) text += "; ";
      text += time_us < previous_us ? fmt::format("tp {} is {:.2f}x as fast as tp {}", tp,
                                                  previous_us / time_us, previous_tp)
                                    : fmt::format("tp {} is slower than tp {} ({:.2f}x the time)",
                                                  tp, previous_tp, time_us / previous_us);
    }
    previous_tp = tp;
    previous_us = time_us;
  }
  return text;
}

}  // namespace

double CostModel::predict_us(double flops, double bytes) const {
  const double transfer_us = has_bandwidth ? bytes / bandwidth_GBps / 1e3 : 0;
  return flops / rate_tflops / 1e6 + transfer_us + alpha_us;
}

Fit fit_cost_model(std::span<const Result> results) {
  std::vector<const Result*> used;
  std::set<int> degrees;
  for (const Result& result : results) {
    if (result.status != Status::ok || result.time.p50 <= 0) continue;
    used.push_back(&result);
    degrees.insert(result.tp());
  }
  if (used.size() < 4 || degrees.size() < 2)
    return {std::nullopt, fmt::format("not fitted: {} rows with {} different tp; it takes 4 rows "
                                      "with 2 different tp",
                                      used.size(), degrees.size())};
  // Relative errors: each row divided by its time. GFLOP, MB and ms keep the terms comparable.
  std::vector<Terms> rows;
  for (const Result* result : used)
    rows.push_back({result->flops_observed / 1e9 / result->time.p50,
                    result->bytes_observed / 1e6 / result->time.p50, 1e3 / result->time.p50});
  const auto solution = non_negative(rows);
  if (!solution || (*solution)[0] <= 0)
    return {std::nullopt, "not fitted: the rows do not tell compute from communication"};
  CostModel model;
  model.rate_tflops = 1e3 / (*solution)[0];
  model.has_bandwidth = (*solution)[1] > 0;
  model.bandwidth_GBps = model.has_bandwidth ? 1e3 / (*solution)[1] : 0;
  model.alpha_us = (*solution)[2] * 1e3;
  std::vector<double> errors_pct;
  for (const Result* result : used)
    errors_pct.push_back(100 *
                         std::abs(model.predict_us(result->flops_observed, result->bytes_observed) /
                                      result->time.p50 -
                                  1));
  model.median_error_pct = median(errors_pct);
  model.worst_error_pct = std::ranges::max(errors_pct);
  model.rows = static_cast<int>(used.size());
  return {model, ""};
}

std::vector<ShapeSummary> summarize_shapes(std::span<const Result> results) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Result*>> shapes;
  for (const Result& result : results) {
    if (result.status != Status::ok || result.verdict == does_not_fit) continue;
    const std::string key = shape_key(result.config);
    if (!shapes.contains(key)) order.push_back(key);
    shapes[key].push_back(&result);
  }
  std::vector<ShapeSummary> summaries;
  for (const std::string& key : order) {
    std::map<int, const Result*> fastest;
    ShapeSummary summary;
    summary.shape = describe_shape(shapes[key].front()->config);
    for (const Result* result : shapes[key]) {
      const Result*& best = fastest[result->tp()];
      if (best == nullptr || result->time.p50 < best->time.p50) best = result;
      if (!(result->mfu_causal_pct() > summary.best_mfu_pct)) continue;  // unknown, too
      summary.best_mfu_pct = result->mfu_causal_pct();
      summary.best_mfu_tp = result->tp();
    }
    const auto& winner = std::ranges::min_element(
        fastest, {}, [](const auto& entry) { return entry.second->time.p50; });
    summary.fastest_tp = winner->first;
    summary.fastest_us = winner->second->time.p50;
    summary.crossover = describe_crossover(fastest);
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

}  // namespace shardmark::bench
