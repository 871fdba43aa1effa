#include "bench/collectives/import_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace shardmark::bench::collectives {
namespace {

constexpr std::string_view blanks = " \t\r\v\f";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Length of a prefix at the start of `text`, 0 if there is none.
std::size_t prefix_length(std::string_view text) {
  if (text.front() == '#' || text.starts_with("rccl-tests:")) return 0;
  if (text.front() == '>') return 1;
  if (text.front() == '[') {
    const std::size_t bracket = text.find(']');
    if (bracket == std::string_view::npos) return 0;
    std::size_t end = bracket + 1;
    if (end < text.size() && text[end] == '<') {
      const std::size_t angle = text.find('>', end);
      if (angle != std::string_view::npos) end = angle + 1;
    }
    return end < text.size() && text[end] == ':' ? end + 1 : end;
  }
  const std::size_t end = std::min(text.find_first_of(blanks), text.size());
  if (text[end - 1] == ':' || text.substr(0, end) == "|") return end;
  if (is_time_stamp(text.substr(0, end))) return end;
  const bool before_bar = text.substr(end).starts_with(" | ");
  return before_bar ? end : 0;
}

}  // namespace

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_time_stamp(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  if (text.find_first_not_of("0123456789:-/.,TZ+") != std::string_view::npos) return false;
  return std::count(text.begin(), text.end(), ':') >= 2 ||
         std::count(text.begin(), text.end(), '-') == 2 ||
         std::count(text.begin(), text.end(), '/') == 2;
}

LogLine without_prefix(std::string_view line) {
  LogLine result;
  std::string_view text = trimmed(line);
  while (!text.empty()) {
    const std::size_t length = prefix_length(text);
    if (length == 0) break;
    const std::string_view prefix = text.substr(0, length);
    const bool hour_in_it =
        prefix.front() == '[' && std::count(prefix.begin(), prefix.end(), ':') > 1;
    if (!is_time_stamp(prefix) && !hour_in_it) result.source.append(prefix);
    text = trimmed(text.substr(length));
  }
  result.text = text;
  return result;
}

std::optional<PrintedNumber> parse_printed(std::string_view text) {
  PrintedNumber number;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number.value);
  if (error != std::errc{} || rest != end || !std::isfinite(number.value)) return {};
  const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  int exponent = 0;
  if (exponent_at < text.size()) {
    std::string_view digits = text.substr(exponent_at + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  }
  const std::size_t point = std::min(text.find('.'), exponent_at);
  const int decimals = point < exponent_at ? static_cast<int>(exponent_at - point - 1) : 0;
  number.half_unit = 0.5 * std::pow(10.0, exponent - decimals);
  return number;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || rest != end) return {};
  return value;
}

std::vector<std::string_view> split_fields(std::string_view text) {
  std::vector<std::string_view> fields;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t end = std::min(text.find_first_of(blanks), text.size());
    fields.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return fields;
}

std::vector<std::string_view> split_columns(std::string_view text) {
  std::vector<std::string_view> columns;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t end = std::min({text.find("  "), text.find('\t'), text.size()});
    columns.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return columns;
}

}  // namespace shardmark::bench::collectives
