#pragma once

#include "core/error.hpp"

#include <cstdint>
#include <string>

namespace shardmark {

/// "1 event", "2 events".
[[nodiscard]] inline std::string counted(std::int64_t num, const std::string& word) {
  return message(num, ' ', word, num == 1 ? "" : "s");
}
/// "1 event ends", "2 events end".
[[nodiscard]] inline std::string counted(std::int64_t num, const std::string& word, const char* one,
                                         const char* several) {
  return message(counted(num, word), ' ', num == 1 ? one : several);
}

/// "1.500 us": nanoseconds, not negative, as microseconds with three decimals.
[[nodiscard]] inline std::string microseconds(std::int64_t ns) {
  std::string decimals = std::to_string(ns % 1000);
  decimals.insert(0, 3 - decimals.size(), '0');
  return message(ns / 1000, '.', decimals, " us");
}

/// The start of a name, which may be of megabytes.
[[nodiscard]] inline std::string start_of(const std::string& name) {
  constexpr std::size_t most = 60;
  return name.size() > most ? name.substr(0, most) + "..." : name;
}

}  // namespace shardmark
