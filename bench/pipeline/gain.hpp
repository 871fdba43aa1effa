#pragma once

#include "bench/harness/sink.hpp"
#include "bench/pipeline/balance.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// What balancing changed between two rows of one run: one by count, the other by measured cost.
struct MeasuredGain {
  std::string what;  ///< describe_pipeline of the row by count
  std::vector<std::int64_t> by_count, by_cost;
  /// Compute kernels of the slowest rank in an iteration, median over the profiled ones.
  double slowest_by_count_us{0}, slowest_by_cost_us{0};
  double step_by_count_us{0}, step_by_cost_us{0};  ///< medians of the samples
  [[nodiscard]] double gain_pct() const;           ///< by how much the slowest rank computes less
  [[nodiscard]] double step_gain_pct() const;
};
/// Of every row balanced by measured cost whose split is another than that of its row by count.
[[nodiscard]] std::vector<MeasuredGain> measured_gains(std::span<const Result> results);
[[nodiscard]] std::string to_text(const MeasuredGain& gain);
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const MeasuredGain> gains);

/// Prints the gains after the last row.
class GainText final : public ResultSink {
 public:
  explicit GainText(std::ostream& out) : out_{out} {}
  void add(const Outcome& row) override;
  void finish(bool complete) override;

 private:
  std::ostream& out_;
  std::vector<Result> results_;
};

}  // namespace shardmark::bench::pp
