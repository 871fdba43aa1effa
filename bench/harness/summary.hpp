#pragma once

#include "bench/harness/fit.hpp"
#include "bench/harness/sink.hpp"

#include <iosfwd>
#include <map>
#include <span>
#include <vector>

namespace shardmark::bench {

/// What the rows of a run say together: per shape the fastest tp, the one with the highest MFU and
/// the crossover; per dtype the cost model fitted over all rows.
struct SweepSummary {
  std::vector<ShapeSummary> shapes;
  std::map<DType, Fit> fits;
};
[[nodiscard]] SweepSummary summarize(std::span<const Result> results);

/// Prints the summary after the last row.
class SummaryText final : public ResultSink {
 public:
  explicit SummaryText(std::ostream& out) : out_{out} {}
  void add(const Outcome& row) override { results_.push_back(row.result); }
  void finish(bool complete) override;

 private:
  std::ostream& out_;
  std::vector<Result> results_;
};

}  // namespace shardmark::bench
