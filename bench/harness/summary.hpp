#pragma once

#include "bench/harness/sink.hpp"

#include <iosfwd>
#include <vector>

namespace shardmark::bench {

/// After the last row: per shape the fastest tp, the one with the highest MFU and the crossover,
/// and the cost model fitted over the rows of each kind.
class Summary final : public ResultSink {
 public:
  explicit Summary(std::ostream& out) : out_{out} {}
  void add(const Outcome& row) override { results_.push_back(row.result); }
  void finish(bool complete) override;

 private:
  void print_fits() const;

  std::ostream& out_;
  std::vector<Result> results_;
};

}  // namespace shardmark::bench
