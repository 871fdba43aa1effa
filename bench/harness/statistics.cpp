#include "bench/harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shardmark::bench {
namespace {

double percentile_sorted(std::span<const double> sorted, double pct) {
  if (sorted.empty()) return 0;
  const double position = pct / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::ranges::sort(copy);
  return copy;
}

}  // namespace

double percentile(std::span<const double> values, double pct) {
  return percentile_sorted(sorted(values), pct);
}

double median(std::span<const double> values) { return percentile(values, 50); }

TimeSummary summarize(std::span<const double> samples_us) {
  if (samples_us.empty()) return {};
  const std::vector<double> values = sorted(samples_us);
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return {.p50 = percentile_sorted(values, 50),
          .p10 = percentile_sorted(values, 10),
          .p95 = percentile_sorted(values, 95),
          .p99 = percentile_sorted(values, 99),
          .min = values.front(),
          .max = values.back(),
          .mean = mean,
          .cv_pct = mean > 0 ? 100 * deviation / mean : 0,
          .p50_ci_pct = 100 * median_noise(samples_us),
          .samples = static_cast<int>(values.size())};
}

double median_half_width(std::span<const double> values) {
  if (values.size() < 5) return 1;
  const std::vector<double> ordered = sorted(values);
  const auto n = static_cast<double>(ordered.size());
  const double reach = 0.98 * std::sqrt(n);
  const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(n / 2 - reach)));
  const auto high = static_cast<std::size_t>(std::min(n - 1, std::ceil(n / 2 + reach)));
  const double middle = percentile_sorted(ordered, 50);
  return middle > 0 ? (ordered[high] - ordered[low]) / 2 / middle : 1;
}

double median_noise(std::span<const double> samples) {
  constexpr std::size_t num_batches = 10;
  constexpr double t_95 = 2.262;  // Student's, 9 degrees of freedom
  const double as_if_independent = median_half_width(samples);
  const std::size_t length = samples.size() / num_batches;
  if (length < 5) return as_if_independent;
  std::vector<double> medians;
  for (std::size_t batch = 0; batch < num_batches; ++batch)
    medians.push_back(median(samples.subspan(batch * length, length)));
  const double mean = std::accumulate(medians.begin(), medians.end(), 0.0) / num_batches;
  double squares = 0;
  for (const double value : medians) squares += (value - mean) * (value - mean);
  const double of_mean = std::sqrt(squares / (num_batches - 1) / num_batches);
  return mean > 0 ? std::max(as_if_independent, t_95 * of_mean / mean) : 1;
}

bool should_stop(const StopRule& rule, std::span<const double> samples, double elapsed_s) {
  const auto count = static_cast<int>(samples.size());
  if (count >= rule.min_samples)
    return elapsed_s >= rule.max_time_s || median_half_width(samples) <= rule.half_width;
  return elapsed_s >= 3 * rule.max_time_s && count >= 3;
}

}  // namespace shardmark::bench
