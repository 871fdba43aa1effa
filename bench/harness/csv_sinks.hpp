#pragma once

#include "bench/harness/columns.hpp"
#include "bench/harness/csv.hpp"
#include "bench/harness/sink.hpp"

#include <set>
#include <string>

namespace shardmark::bench {

/// results.csv: one row per configuration and phase.
class ResultsCsv final : public ResultSink {
 public:
  ResultsCsv(const std::string& folder, RunIdentity run, bool resume);
  void add(const Outcome& row) override;

 private:
  RunIdentity run_;
  CsvFile file_;
};

/// kernels.csv: one row per kernel of the profiled iteration, rank by rank.
class KernelsCsv final : public ResultSink {
 public:
  KernelsCsv(const std::string& folder, RunIdentity run, bool resume);
  void add(const Outcome& row) override;

 private:
  RunIdentity run_;
  CsvFile file_;
};

/// The keys (see row_key) of the rows in `folder`/results.csv; none when there is no such file.
/// Throws InputError when its columns are not those of this version of the program.
[[nodiscard]] std::set<std::string> finished_rows(const std::string& folder, Tool tool = Tool::tp);
/// Throws InputError when `folder`/results.csv, whose columns are those of this version, has
/// measured rows and `run` predicts, or the reverse.
void check_source(const std::string& folder, const RunIdentity& run);

}  // namespace shardmark::bench
