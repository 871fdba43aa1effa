#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <iosfwd>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// Prints the conventions, then one line per row as it finishes, with what it communicates below.
class Table final : public ResultSink {
 public:
  Table(std::ostream& out, bool verbose) : out_{out}, verbose_{verbose} {}
  /// Who runs, what the numbers mean, and the column names.
  void begin(const bench::Options& options, const Transport& transport,
             const std::vector<std::string>& notices);
  void add(const Outcome& row) override;

 private:
  void add_measured(const Result& result);

  std::ostream& out_;
  bool verbose_;
};

}  // namespace shardmark::bench::pp
