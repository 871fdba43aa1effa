#pragma once

#include "bench/collectives/import_nccl.hpp"

namespace shardmark::bench::collectives {

/// The lines of one process that runs OSU micro-benchmarks, one after the other.
class OsuReader {
 public:
  /// True for the line that names a test.
  [[nodiscard]] static bool starts_a_test(std::string_view text);
  void take(const LogLine& line, ImportedLog& log);

 private:
  void start_run(std::string_view title, ImportedLog& log);
  void take_row(const LogLine& line, ImportedLog& log);
  [[nodiscard]] bool store(std::string_view column, std::string_view field, ImportedRow& row) const;

  ImportedRow run_{};  ///< what all rows of the run share
  std::vector<std::string> columns_;
};

}  // namespace shardmark::bench::collectives
