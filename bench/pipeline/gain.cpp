#include "bench/pipeline/gain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

namespace shardmark::bench::pp {
namespace {

/// Equal for rows that differ in nothing but their balance.
std::string key_of(Case config) {
  config.balance = "count";
  return shape_key(config) + ' ' + describe(config);
}

double slowest_us(const PipelineTimes& times) {
  double most = 0;
  for (const PipelineSplit& rank : times.ranks) most = std::max(most, rank.compute_us());
  return most;
}

double less_pct(double now, double before) { return before > 0 ? 100 * (1 - now / before) : 0; }

MeasuredGain compared(const Result& by_count, const Result& by_cost) {
  return {.what = describe_pipeline(by_count.config),
          .by_count = by_count.config.layer.pipeline.blocks,
          .by_cost = by_cost.config.layer.pipeline.blocks,
          .slowest_by_count_us = slowest_us(*by_count.pipeline),
          .slowest_by_cost_us = slowest_us(*by_cost.pipeline),
          .step_by_count_us = by_count.time.p50,
          .step_by_cost_us = by_cost.time.p50};
}

}  // namespace

double MeasuredGain::gain_pct() const { return less_pct(slowest_by_cost_us, slowest_by_count_us); }
double MeasuredGain::step_gain_pct() const { return less_pct(step_by_cost_us, step_by_count_us); }

std::vector<MeasuredGain> measured_gains(std::span<const Result> results) {
  std::vector<MeasuredGain> gains;
  for (const Result& by_cost : results) {
    if (by_cost.config.balance != "measured" || !by_cost.pipeline) continue;
    const std::string key = key_of(by_cost.config);
    const auto by_count = std::ranges::find_if(results, [&](const Result& other) {
      return other.config.balance == "count" && other.pipeline && key_of(other.config) == key;
    });
    if (by_count == results.end()) continue;
    MeasuredGain gain = compared(*by_count, by_cost);
    if (gain.by_count != gain.by_cost) gains.push_back(std::move(gain));
  }
  return gains;
}

std::string to_text(const MeasuredGain& gain) {
  return fmt::format(
      "{}: {} blocks instead of {}: the slowest rank computes {:.2f} instead of {:.2f} ms ({:+.1f} "
      "%), a step takes {:.2f} instead of {:.2f} ms ({:+.1f} %)",
      gain.what, fmt::join(gain.by_cost, "+"), fmt::join(gain.by_count, "+"),
      gain.slowest_by_cost_us / 1e3, gain.slowest_by_count_us / 1e3, -gain.gain_pct(),
      gain.step_by_cost_us / 1e3, gain.step_by_count_us / 1e3, -gain.step_gain_pct());
}

nlohmann::ordered_json to_json(std::span<const MeasuredGain> gains) {
  auto list = nlohmann::ordered_json::array();
  for (const MeasuredGain& gain : gains)
    list.push_back({{"case", gain.what},
                    {"split_by_count", gain.by_count},
                    {"split_by_cost", gain.by_cost},
                    {"slowest_rank_by_count_us", gain.slowest_by_count_us},
                    {"slowest_rank_by_cost_us", gain.slowest_by_cost_us},
                    {"gain_pct", gain.gain_pct()},
                    {"step_by_count_us", gain.step_by_count_us},
                    {"step_by_cost_us", gain.step_by_cost_us},
                    {"step_gain_pct", gain.step_gain_pct()}});
  return list;
}

void GainText::add(const Outcome& row) { results_.push_back(row.result); }

void GainText::finish(bool) {
  const std::vector<MeasuredGain> gains = measured_gains(results_);
  if (gains.empty()) return;
  out_ << "\nBalance, measured (predicted above)\n";
  for (const MeasuredGain& gain : gains) out_ << "  " << to_text(gain) << '\n';
  out_ << std::flush;
}

}  // namespace shardmark::bench::pp
