#pragma once

#include "bench/collectives/row.hpp"

#include <optional>
#include <span>
#include <string>

namespace shardmark::bench::collectives {

/// time = alpha + size / bandwidth.
struct LineFit {
  double alpha_us{0};
  double bandwidth_GBps{0};  ///< 0: infinite, the sizes do not show one
  double median_error_pct{0}, worst_error_pct{0};
  int points{0};
  [[nodiscard]] double predict_us(double size_bytes) const;
};
struct TimedSize {
  double size_bytes{0}, time_us{0};
};
/// Least squares on relative errors with both terms non-negative. Nothing below three sizes.
[[nodiscard]] std::optional<LineFit> fit_line(std::span<const TimedSize> points);

/// Fits the rows of a series that share algorithm and place, and fills their expected_us, fit terms
/// and verdicts. Returns a line per fit: "native out of place: 1.2 us + size / 5.3 GB/s, ...".
std::vector<std::string> conclude(std::span<Row> rows);

}  // namespace shardmark::bench::collectives
