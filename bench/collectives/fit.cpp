#include "bench/collectives/fit.hpp"

#include "bench/harness/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace shardmark::bench::collectives {
namespace {

constexpr double slow_factor = 1.25;  ///< of expected, or twice the fit's error if that is more

double squared_error(std::span<const TimedSize> points, double alpha, double per_byte) {
  double sum = 0;
  for (const TimedSize& point : points) {
    const double error = (alpha + per_byte * point.size_bytes) / point.time_us - 1;
    sum += error * error;
  }
  return sum;
}

void judge(Row& row, const LineFit* fit) {
  if (row.status != Status::ok) return;
  if (fit == nullptr) {
    row.verdict = "not_fitted";
    row.verdict_reason = "a fit takes three sizes, for example -b 8 -e 64M -f 2";
    return;
  }
  const double size = static_cast<double>(row.point.size_bytes);
  row.expected_us = fit->predict_us(size);
  row.alpha_us = fit->alpha_us;
  row.bandwidth_GBps = fit->bandwidth_GBps;
  row.fit_error_pct = fit->median_error_pct;
  const double factor = row.time.p50 / row.expected_us;
  const double alpha_pct = 100 * fit->alpha_us / row.expected_us;
  if (factor > std::max(slow_factor, 1 + fit->median_error_pct / 50)) {
    row.verdict = "slower_than_expected";
    row.verdict_reason = fmt::format(
        "{:.2f}x the expected {:.2f} us (fit's median error {:.0f} %); another algorithm "
        "may fit this size (--algorithm all), or caches end here",
        factor, row.expected_us, fit->median_error_pct);
  } else if (alpha_pct > 50) {
    row.verdict = "latency_bound";
    row.verdict_reason = fmt::format(
        "latency {:.2f} us is {:.0f} % of the expected {:.2f} us; fewer, larger calls "
        "cost less",
        fit->alpha_us, alpha_pct, row.expected_us);
  } else {
    row.verdict = "bandwidth_bound";
    row.verdict_reason = fmt::format(
        "latency is {:.0f} % of the expected {:.2f} us; busbw is {:.0f} % of a copy of "
        "the same size ({:.2f} GB/s)",
        alpha_pct, row.expected_us, row.efficiency_pct(), row.copy_GBps());
  }
}

}  // namespace

double LineFit::predict_us(double size_bytes) const {
  return alpha_us + (bandwidth_GBps > 0 ? size_bytes / bandwidth_GBps / 1e3 : 0);
}

std::optional<LineFit> fit_line(std::span<const TimedSize> points) {
  if (points.size() < 3) return std::nullopt;
  // Each point divided by its time: (1 / t) alpha + (s / t) per_byte = 1.
  double a = 0, b = 0, c = 0, d = 0, e = 0;
  for (const TimedSize& point : points) {
    const double u = 1 / point.time_us, v = point.size_bytes / point.time_us;
    a += u * u;
    b += u * v;
    c += v * v;
    d += u;
    e += v;
  }
  std::vector<std::pair<double, double>> candidates{{d / a, 0}};
  if (c > 0) candidates.emplace_back(0, e / c);
  if (const double determinant = a * c - b * b; determinant > 1e-12 * a * c) {
    const std::pair both{(d * c - b * e) / determinant, (a * e - b * d) / determinant};
    if (both.first >= 0 && both.second >= 0) candidates.push_back(both);
  }
  const auto best = std::ranges::min_element(candidates, {}, [&](const auto& candidate) {
    return squared_error(points, candidate.first, candidate.second);
  });
  LineFit fit{.alpha_us = best->first,
              .bandwidth_GBps = best->second > 0 ? 1e-3 / best->second : 0,
              .points = static_cast<int>(points.size())};
  std::vector<double> errors_pct;
  for (const TimedSize& point : points)
    errors_pct.push_back(100 * std::abs(fit.predict_us(point.size_bytes) / point.time_us - 1));
  fit.median_error_pct = median(errors_pct);
  fit.worst_error_pct = std::ranges::max(errors_pct);
  return fit;
}

std::vector<std::string> conclude(std::span<Row> rows) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, bool>> done;
  for (const Row& first : rows) {
    const std::pair key{first.point.algorithm, first.point.in_place};
    if (std::ranges::find(done, key) != done.end()) continue;
    done.push_back(key);
    std::vector<TimedSize> points;
    const auto belongs = [&](const Row& row) {
      return row.status == Status::ok && row.point.algorithm == key.first &&
             row.point.in_place == key.second && row.time.p50 > 0;
    };
    for (const Row& row : rows)
      if (belongs(row)) points.push_back({static_cast<double>(row.point.size_bytes), row.time.p50});
    const std::optional<LineFit> fit = fit_line(points);
    for (Row& row : rows)
      if (belongs(row)) judge(row, fit ? &*fit : nullptr);
    if (!fit) continue;
    const std::string bandwidth = fit->bandwidth_GBps > 0
                                      ? fmt::format(" + size / {:.3g} GB/s", fit->bandwidth_GBps)
                                      : std::string{};
    lines.push_back(
        fmt::format("expected of {} {}: {:.3g} us{}; error: median {:.0f} %, worst {:.0f} %",
                    key.first, key.second ? "in place" : "out of place", fit->alpha_us, bandwidth,
                    fit->median_error_pct, fit->worst_error_pct));
  }
  return lines;
}

}  // namespace shardmark::bench::collectives
