#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::bench {

// Readers of option values. Each throws InputError naming the option, the value, the rule and
// values that work.

/// A whole number in [1, 2^31); "k" and "m" multiply by 1024 and 1024^2: "4k" is 4096.
[[nodiscard]] std::int64_t parse_quantity(std::string_view option, std::string_view text);
/// A whole number in [lowest, 2^31).
[[nodiscard]] int parse_count(std::string_view option, std::string_view text, int lowest);
/// A finite decimal number >= lowest.
[[nodiscard]] double parse_number(std::string_view option, std::string_view text, double lowest);
/// An unsigned 64-bit number.
[[nodiscard]] std::uint64_t parse_seed(std::string_view option, std::string_view text);

/// The parts of "a,b,c". Throws when a part is empty.
[[nodiscard]] std::vector<std::string> split_list(std::string_view option, std::string_view text);

/// Throws InputError: `text` is none of `names`.
[[noreturn]] void fail_choice(std::string_view option, std::string_view text,
                              std::span<const std::string_view> names);

/// The value that goes with the name `text`.
template <class T>
[[nodiscard]] T parse_choice(std::string_view option, std::string_view text,
                             const std::vector<std::pair<std::string_view, T>>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names.push_back(name);
  }
  fail_choice(option, text, names);
}

/// Reads every part of a list; equal values are kept once.
template <class Parse>
[[nodiscard]] auto parse_list(std::string_view option, std::string_view text, const Parse& parse) {
  using Value = decltype(parse(option, text));
  std::vector<Value> values;
  for (const std::string& part : split_list(option, text)) {
    const Value value = parse(option, part);
    bool known = false;
    for (const Value& other : values) known = known || other == value;
    if (!known) values.push_back(value);
  }
  return values;
}

}  // namespace shardmark::bench
