#pragma once

#include <cstdint>
#include <iosfwd>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::bench::collectives {

/// One measurement out of somebody else's log: a placement (out of place, in place) of a row of
/// nccl-tests or rccl-tests, or a row of OSU. Numbers are as printed; what is not printed is empty.
struct ImportedRow {
  std::string tool{};   ///< "nccl-tests", "rccl-tests" or "osu"
  std::string title{};  ///< OSU: the test's name; else words of further columns: "algorithm ring"
  int run{0};           ///< index of the run in its file
  std::int64_t line{0};
  std::string collective{};  ///< our name; empty where neither the log nor its columns tell
  std::int64_t bytes{0};     ///< 0 for a barrier
  std::optional<std::int64_t> count{};
  std::string dtype{}, reduction{};  ///< the tool's own names
  std::optional<std::int64_t> root{};
  bool in_place{false};
  std::optional<std::int64_t> ranks{};
  std::optional<double> time_us{}, min_us{}, max_us{};
  std::optional<std::int64_t> iterations{};
  std::optional<double> algbw_GBps{}, busbw_GBps{};  ///< GB = 1e9; OSU's MB/s (MB = 1e6) over 1000
  std::optional<double> num_wrong{};                 ///< elements
  std::optional<double> max_error{};  ///< relative; nccl-tests before 2.13 print it instead
  /// Columns without a field of their own, as printed: "Overlap(%)", 68.15.
  std::vector<std::pair<std::string, double>> others{};
};

struct ImportProblem {
  std::int64_t line{0};  ///< from 1
  std::string reason;
};
using Problems = std::vector<ImportProblem>;

/// Reads text output of nccl-tests, rccl-tests and OSU micro-benchmarks: several runs in one
/// stream, prefixes of launchers and loggers, noise between the rows, N/A columns. What is whole
/// becomes a row. A line that looks like part of a result and cannot be taken, or contradicts
/// itself (busbw against algbw and the rank count, algbw against size and time), is in `problems`.
[[nodiscard]] std::vector<ImportedRow> import_log(std::istream& in, Problems& problems);

[[nodiscard]] const std::vector<std::string>& imported_columns();
[[nodiscard]] std::vector<std::string> imported_cells(const ImportedRow& row,
                                                      const std::string& file);

/// `--import FILE[,FILE]`: prints a table to `out`, problems to `problems`, and writes
/// `out_dir`/imported.csv unless `out_dir` is empty; one that is there is renamed to .old. Returns
/// 0 when every file gave rows (dropped lines are in `problems`), 1 when only some did, 2 when
/// none. Throws InputError for a file that cannot be read or a folder that cannot be written.
int run_import(const std::vector<std::string>& files, const std::string& out_dir, std::ostream& out,
               std::ostream& problems = std::cerr);

}  // namespace shardmark::bench::collectives
