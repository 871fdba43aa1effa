#include "bench/analyze/time_text.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace shardmark::bench {

std::string TimeUnit::text(std::int64_t ns) const {
  std::string text =
      fmt::format("{:.3f}", static_cast<double>(ns) / static_cast<double>(length_ns));
  return text == "-0.000" ? "0.000" : text;
}

std::string TimeUnit::change(std::int64_t ns) const {
  const std::string number = text(ns);
  return number.starts_with('-') ? number : '+' + number;
}

std::string TimeUnit::heading(std::string_view what) const {
  return fmt::format("{}({})", what, name);
}

TimeUnit unit_for(std::int64_t longest_ns) {
  constexpr std::int64_t ns_per_us = 1'000, ns_per_ms = 1'000'000;
  return std::abs(longest_ns) < 10 * ns_per_ms ? TimeUnit{"us", ns_per_us}
                                               : TimeUnit{"ms", ns_per_ms};
}

std::string time_text(std::int64_t ns) {
  const TimeUnit unit = unit_for(ns);
  return fmt::format("{} {}", unit.text(ns), unit.name);
}

}  // namespace shardmark::bench
