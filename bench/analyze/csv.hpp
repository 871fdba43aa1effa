#pragma once

#include "bench/analyze/report.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench::analyze {

/// Rises when a column changes meaning.
inline constexpr int schema_version = 1;

/// One value as CSV and JSON print it. Empty: there is none.
struct Cell {
  std::string text;
  bool is_literal{false};  ///< a number or boolean
};
/// A table of the outputs: "results" has a row per rank and window.
struct Table {
  struct Column {
    std::string name, unit, meaning;
  };
  std::string name;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// results, collectives, kernels, across, gaps: the only description of their files, of the same
/// tables in JSON, and of --list-columns.
[[nodiscard]] std::vector<Table> tables_of(const Report& report);

/// Header and rows.
[[nodiscard]] std::string csv_text(const Table& table);
/// The Markdown tables of results/README.md.
[[nodiscard]] std::string columns_markdown();

/// "compute", "communication" or "memory".
[[nodiscard]] std::string_view name_of(WorkClass work);

/// Microseconds with three decimals, exactly: "1222847.000".
[[nodiscard]] std::string us_text(std::int64_t ns);

}  // namespace shardmark::bench::analyze
