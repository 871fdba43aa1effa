#include "bench/harness/quantity.hpp"

#include "core/error.hpp"
#include "core/nearest.hpp"

#include <charconv>
#include <cmath>
#include <limits>

namespace shardmark::bench {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void fail(std::string_view option, std::string_view text, std::string_view rule) {
  throw InputError{message(option, ": '", text, "' ", rule)};
}

[[noreturn]] void fail_too_large(std::string_view option, std::string_view text) {
  fail(option, text, message("is too large; the largest value is ", largest));
}

/// The number at the front of `text`, which must be all digits up to `suffix`.
std::int64_t parse_whole(std::string_view option, std::string_view text, std::string_view digits,
                         std::string_view examples) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) fail_too_large(option, text);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty())
    fail(option, text, message("is not a whole number; try ", examples));
  return value;
}

}  // namespace

std::int64_t parse_quantity(std::string_view option, std::string_view text) {
  std::int64_t unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const char suffix = text.back();
    if (suffix == 'k' || suffix == 'K') unit = 1024;
    if (suffix == 'm' || suffix == 'M') unit = 1024 * 1024;
    if (unit != 1) digits.remove_suffix(1);
  }
  const std::int64_t value =
      parse_whole(option, text, digits, "512, 1k (= 1024) or 1m (= 1048576)");
  if (value < 1) fail(option, text, "must be at least 1");
  if (value > largest / unit) fail_too_large(option, text);
  return value * unit;
}

int parse_count(std::string_view option, std::string_view text, int lowest) {
  const std::int64_t value = parse_whole(option, text, text, "2 or 10");
  if (value < lowest) fail(option, text, message("must be at least ", lowest));
  if (value > largest) fail_too_large(option, text);
  return static_cast<int>(value);
}

double parse_number(std::string_view option, std::string_view text, double lowest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    fail(option, text, "is not a number; try 0.5 or 10");
  if (value < lowest) fail(option, text, message("must be at least ", lowest));
  return value;
}

std::uint64_t parse_seed(std::string_view option, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(option, text, "is not a whole number from 0 to 2^64 - 1");
  return value;
}

std::vector<std::string> split_list(std::string_view option, std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t first = 0;;) {
    const std::size_t comma = text.find(',', first);
    parts.emplace_back(text.substr(first, comma - first));
    if (parts.back().empty())
      fail(option, text, "has an empty element; write 1,2,4 without spaces");
    if (comma == std::string_view::npos) return parts;
    first = comma + 1;
  }
}

void fail_choice(std::string_view option, std::string_view text,
                 std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list += message(list.empty() ? "" : ", ", name);
  fail(option, text, message("is none of ", list, did_you_mean(text, names)));
}

}  // namespace shardmark::bench
