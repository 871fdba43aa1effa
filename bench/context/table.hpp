#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace shardmark::bench::context {

/// Prints the conventions, then one line per row as it finishes, with what its exchange moves
/// below.
class Table final : public ResultSink {
 public:
  Table(std::ostream& out, bool verbose) : out_{out}, verbose_{verbose} {}
  /// Who runs, what the numbers mean, and the column names.
  void begin(const bench::Options& options, const Transport& transport,
             const std::vector<std::string>& notices);
  void add(const Outcome& row) override;

 private:
  void add_measured(const Result& result);
  [[nodiscard]] std::string speedup(const Result& result) const;

  std::ostream& out_;
  bool verbose_;
  std::map<std::string, double> serial_us_;  ///< p50 of cp 1, by shape and tp
};

}  // namespace shardmark::bench::context
