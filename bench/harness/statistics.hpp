#pragma once

#include "bench/harness/result.hpp"

#include <span>

namespace shardmark::bench {

/// Percentiles by linear interpolation between order statistics (NumPy's default). Unsorted input.
[[nodiscard]] double percentile(std::span<const double> values, double pct);
[[nodiscard]] double median(std::span<const double> values);
/// p10, p50, ..., cv = sample deviation / mean.
[[nodiscard]] TimeSummary summarize(std::span<const double> samples_us);

/// Half the width of the 95 % confidence interval of the median over the median, from order
/// statistics n/2 +- 0.98 sqrt(n) (binomial, normal approximation). 1 for fewer than 5 samples.
[[nodiscard]] double median_half_width(std::span<const double> values);

/// The same for samples in the order in which they were taken, which may drift: the larger of that
/// and the half width from the medians of ten batches of consecutive samples (batch means; 50
/// samples or more).
[[nodiscard]] double median_noise(std::span<const double> samples);

/// When to stop sampling: a pure function of what all ranks know, so all ranks agree.
struct StopRule {
  int min_samples{10};
  double max_time_s{5.0};
  double half_width{0.01};  ///< narrow enough
};
/// Stops once there are min_samples and either the median is known to `half_width` or the time is
/// up; a row whose min_samples would take over 3 times max_time stops at 3 samples.
[[nodiscard]] bool should_stop(const StopRule& rule, std::span<const double> samples,
                               double elapsed_s);

}  // namespace shardmark::bench
