#pragma once

#include "bench/collectives/import.hpp"
#include "bench/collectives/import_text.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench::collectives {

/// Where readers put what they found.
struct ImportedLog {
  std::vector<ImportedRow>& rows;
  Problems& problems;
  int num_runs{0};

  void report(const LogLine& line, std::string reason) const;
};

/// The lines of one process that runs nccl-tests or rccl-tests, one run after the other.
class NcclReader {
 public:
  void take(const LogLine& line, ImportedLog& log);

 private:
  /// Columns in front of the two groups of four, and what the groups' last column means.
  struct Layout {
    bool known{false}, has_reduction{false}, has_root{false};
    bool relative_error{false}, cpu_time{false};
    std::vector<std::string> extras{};  ///< columns behind the groups
  };
  struct Group {
    PrintedNumber time, algbw, busbw;
    std::optional<double> num_wrong, max_error;
    bool measured{false};  ///< false: N/A
  };

  void start_run(const LogLine& line, ImportedLog& log);
  void take_comment(const LogLine& line, ImportedLog& log);
  void take_table_header(const LogLine& line, const std::vector<std::string_view>& names,
                         ImportedLog& log);
  void take_footer(const LogLine& line, std::string_view text, ImportedLog& log);
  void take_row(const LogLine& line, std::vector<std::string_view> fields, ImportedLog& log);
  [[nodiscard]] bool find_layout(const std::vector<std::string_view>& fields);
  void take_groups(const LogLine& line, const std::vector<std::string_view>& fields,
                   std::size_t begin, ImportedRow row, ImportedLog& log);
  [[nodiscard]] std::string read_group(const std::vector<std::string_view>& fields,
                                       std::size_t begin, Group& group) const;
  /// Columns behind the groups: numbers into `others`, words into `title`. What is there for each
  /// half goes to its own.
  void take_extras(const std::vector<std::string_view>& fields, std::size_t begin,
                   ImportedRow& row) const;
  void check_rates(const LogLine& line, const ImportedRow& row, const Group& group,
                   ImportedLog& log) const;
  [[nodiscard]] std::string collective_of(const ImportedRow& row) const;

  std::string announced_;  ///< collective named by a command line before the run
  std::string tool_{"nccl-tests"}, collective_;
  int run_{-1};
  bool open_{false};        ///< before the footer
  bool has_header_{false};  ///< a line names the columns of this run
  std::int64_t ranks_{0};   ///< 0 while unknown
  Layout layout_{};
  std::int64_t last_bytes_{0}, num_rows_{0}, num_busbw_{0};
  double sum_busbw_{0};
};

}  // namespace shardmark::bench::collectives
