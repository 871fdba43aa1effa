#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

// Comment lines above a table: who runs, what the peak is, what the user may not expect.
void print_launch(std::ostream& out, const Options& options, const Transport& transport);
[[nodiscard]] std::string describe_peak(const Options& options);
void print_notices(std::ostream& out, const Transport& transport,
                   const std::vector<std::string>& notices);

/// Prints the conventions, then one line per row as it finishes (widths are fixed), with the
/// communication it costs below.
class Table final : public ResultSink {
 public:
  Table(std::ostream& out, bool verbose) : out_{out}, verbose_{verbose} {}
  /// Who runs, what the numbers mean, and the column names.
  void begin(const Options& options, const Transport& transport,
             const std::vector<std::string>& notices);
  void add(const Outcome& row) override;

 private:
  [[nodiscard]] std::string speedup(const Result& result) const;

  std::ostream& out_;
  bool verbose_;
  std::map<std::string, double> serial_us_;  ///< p50 of tp 1, by shape
};

// What the tables of all programs say alike about a row.
/// Of the column check: "off", "pass" or "FAIL".
[[nodiscard]] std::string_view check_text(const Result& result);
/// Of the column MFU: percent, or "-" where no peak is known.
[[nodiscard]] std::string mfu_text(const Result& result);
/// In place of the numbers of a row that has none: "skipped: " or "FAILED: " and the reason. Empty
/// where there are numbers.
[[nodiscard]] std::string missing_text(const Result& result);
/// Below a row, a line for each term of its communication by formula.
void print_terms(std::ostream& out, const std::vector<VolumeLine>& volume);
/// Below a row, the verdict and its reason; always or where something other than compute binds.
void print_verdict(std::ostream& out, const Result& result, bool always);

/// "forward 2 all-reduce, backward 2 all-reduce": how often each collective runs in one iteration.
[[nodiscard]] std::string count_collectives(const std::vector<VolumeLine>& volume);
/// "8.39 MB" (MB = 1e6).
[[nodiscard]] std::string format_bytes(double bytes);

}  // namespace shardmark::bench
