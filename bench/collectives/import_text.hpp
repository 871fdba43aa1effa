#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench::collectives {

/// A line of a log without what launchers and loggers put in front of it.
struct LogLine {
  std::int64_t number{0};  ///< from 1
  std::string_view text{};
  /// The prefixes without time stamps: lines of one process have the same.
  std::string source{};
  bool terminated{true};  ///< false for a last line without newline
};

/// Takes "[1,0]<stdout>:", "12: ", "node1: ", "node1 | ", "> " and time stamps off.
[[nodiscard]] LogLine without_prefix(std::string_view line);

/// A number as printed; `half_unit` is half a unit of its last digit.
struct PrintedNumber {
  double value{0}, half_unit{0};
};
/// The whole of `text`, finite; nothing otherwise.
[[nodiscard]] std::optional<PrintedNumber> parse_printed(std::string_view text);
/// The whole of `text`, digits with an optional minus sign, in range.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);

[[nodiscard]] std::vector<std::string_view> split_fields(std::string_view text);
/// Splits where two or more spaces are, as between column names that hold spaces themselves.
[[nodiscard]] std::vector<std::string_view> split_columns(std::string_view text);
[[nodiscard]] bool is_digits(std::string_view text);
/// "12:30:01.5", "2026-01-31", "2026-01-31T12:30:01Z"
[[nodiscard]] bool is_time_stamp(std::string_view text);

}  // namespace shardmark::bench::collectives
