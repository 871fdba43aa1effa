#pragma once

#include "bench/collectives/cases.hpp"
#include "bench/collectives/columns.hpp"
#include "bench/collectives/table.hpp"
#include "bench/harness/csv.hpp"
#include "bench/harness/run_json.hpp"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// Where rows go, on rank 0: the table on stdout, and with --out results.csv, waits.csv, run.json.
class Report {
 public:
  Report(const Options& options, const World& world, RunIdentity run, const Transport& transport,
         const std::vector<std::string>& command_line, const std::vector<std::string>& notices);

  /// Keys of rows that an earlier run has finished.
  [[nodiscard]] const std::set<std::string>& finished() const { return finished_; }
  [[nodiscard]] const RunIdentity& run() const { return run_; }

  void begin(const Series& series);
  /// The rows of one size, which are on the disk afterwards.
  void add(const std::vector<Row>& rows);
  /// The rows of a series once more, with what only all of them tell.
  void conclude(const std::vector<Row>& rows, const std::vector<std::string>& fits);
  void end();
  void finish(bool complete);
  [[nodiscard]] int num_ok() const { return num_ok_; }
  [[nodiscard]] int num_failed() const { return num_failed_; }
  /// All rows of this run.
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  void read_earlier();
  void drop_unfinished_waits();
  void rewrite();

  const Options& options_;
  RunIdentity run_;
  Table table_;
  std::vector<Endpoint> endpoints_;
  std::vector<int> groups_;
  std::set<std::string> finished_;
  std::vector<std::vector<std::string>> earlier_;  ///< lines of results.csv before this run
  std::vector<Row> rows_;
  std::unique_ptr<CsvFile> results_, waits_;
  std::unique_ptr<RunRecord> record_;
  std::vector<std::string> fits_;
  std::set<std::string> said_;
  bool begun_{false};
  int num_ok_{0}, num_failed_{0}, num_skipped_{0};
};

}  // namespace shardmark::bench::collectives
