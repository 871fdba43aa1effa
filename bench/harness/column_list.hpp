#pragma once

#include "bench/harness/columns.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

// The parts of the list of columns (column_list*.cpp).
[[nodiscard]] std::vector<Column> identity_columns();
[[nodiscard]] std::vector<Column> shape_columns();
[[nodiscard]] std::vector<Column> time_columns();
[[nodiscard]] std::vector<Column> pipeline_columns();
[[nodiscard]] std::vector<Column> inference_columns();
[[nodiscard]] std::vector<Column> rate_columns();
[[nodiscard]] std::vector<Column> quality_columns();

// Cells: six significant digits for rates and times, whole numbers for counts of bytes and FLOPs.
[[nodiscard]] std::string text(bool value);
[[nodiscard]] std::string text(int value);
[[nodiscard]] std::string text(std::int64_t value);
[[nodiscard]] std::string text(double value);
/// Microseconds to the nanosecond, so that they are those of the timeline.
[[nodiscard]] std::string exact_us(double time_us);
[[nodiscard]] inline std::string text(std::string_view value) { return std::string{value}; }
[[nodiscard]] inline std::string text(const std::string& value) { return value; }
[[nodiscard]] inline std::string text(const char* value) { return value; }

/// The largest of the ranks' values, and their mean.
[[nodiscard]] double busiest(const Row& row, double RankWork::*value);
[[nodiscard]] double mean(const Row& row, double RankWork::*value);

}  // namespace shardmark::bench
