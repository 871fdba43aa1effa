#pragma once

// What the tables of csv.cpp and tables.cpp are made of.

#include "bench/analyze/csv.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::bench::analyze {

inline Cell none() { return {}; }
inline Cell word(std::string text) { return {std::move(text), false}; }
inline Cell flag(bool value) { return {value ? "true" : "false", true}; }
inline Cell count(std::int64_t value) { return {fmt::format("{}", value), true}; }
inline Cell count_if_known(std::int64_t value, std::int64_t least) {
  return value < least ? none() : count(value);
}
inline Cell us(std::int64_t ns) { return {us_text(ns), true}; }
inline Cell us_of(double value_us) { return {fmt::format("{:.3f}", value_us), true}; }
/// Rates and ratios: six significant digits.
inline Cell real(double value) {
  return std::isfinite(value) ? Cell{fmt::format("{:.6g}", value), true} : none();
}
inline Cell real_if_known(double value) { return value > 0 ? real(value) : none(); }
/// Four decimals, as many as a nanosecond in a millisecond has.
inline Cell percent(std::int64_t part_ns, std::int64_t whole_ns) {
  return whole_ns > 0 ? Cell{fmt::format("{:.4f}", percent_of(part_ns, whole_ns)), true} : none();
}

/// One column: its description, and its cell of a row.
template <class Row>
struct Column {
  const char *name, *unit, *meaning;
  Cell (*value)(const Row&);
};

template <class Row>
Table make_table(const char* name, const std::vector<Column<Row>>& columns,
                 const std::vector<Row>& rows) {
  Table table{name, {}, {}};
  for (const Column<Row>& column : columns)
    table.columns.push_back({column.name, column.unit, column.meaning});
  for (const Row& row : rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const Column<Row>& column : columns) cells.push_back(column.value(row));
  }
  return table;
}

// The tables besides results (tables.cpp).
[[nodiscard]] Table collectives_table(const Report& report);
[[nodiscard]] Table kernels_table(const Report& report);
[[nodiscard]] Table across_table(const Report& report);
[[nodiscard]] Table stages_table(const Report& report);
[[nodiscard]] Table gaps_table(const Report& report);

}  // namespace shardmark::bench::analyze
