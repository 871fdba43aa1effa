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
  /// `num_earlier` rows are in the file from before, and not in the summary.
  SummaryText(std::ostream& out, std::size_t num_earlier) : out_{out}, num_earlier_{num_earlier} {}
  void add(const Outcome& row) override { results_.push_back(row.result); }
  void finish(bool complete) override;

 private:
  std::ostream& out_;
  std::size_t num_earlier_;
  std::vector<Result> results_;
};

}  // namespace shardmark::bench
