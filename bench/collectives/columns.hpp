#pragma once

#include "bench/collectives/row.hpp"
#include "bench/harness/columns.hpp"

#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

inline constexpr int schema_version = 2;

/// A row with what the run adds to it.
struct Line {
  const Row& row;
  const RunIdentity& run;
};

/// One column of results.csv. This table is the only description of the file: its header, its
/// lines, the resume keys and --list-columns come from it.
struct Column {
  /// key: always, and part of what makes two lines the same configuration; measured: lines that
  /// were timed. The cell is empty otherwise.
  enum class Holds : std::uint8_t { key, always, measured };

  std::string name, unit, meaning;
  Holds holds{Holds::always};
  std::string (*value)(const Line&){nullptr};

  [[nodiscard]] std::string cell(const Line& line) const;
};
[[nodiscard]] std::span<const Column> columns();
[[nodiscard]] std::vector<std::string> column_names();
[[nodiscard]] std::vector<std::string> cells_of(const Line& line);
/// The key cells, joined.
[[nodiscard]] std::string key_of(const Line& line);

/// waits.csv: the key columns, then rank, wait_us, transfer_us.
[[nodiscard]] std::vector<std::string> wait_column_names();
[[nodiscard]] std::vector<std::vector<std::string>> wait_cells_of(const Line& line);

/// The Markdown table of results/README.md.
[[nodiscard]] std::string columns_markdown();

}  // namespace shardmark::bench::collectives
