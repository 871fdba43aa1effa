#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardmark::bench {

/// The unit of all times of a table; they have three decimals.
struct TimeUnit {
  const char* name;        ///< "ms" or "us"
  std::int64_t length_ns;  ///< of one

  /// "1.250"; never "-0.000".
  [[nodiscard]] std::string text(std::int64_t ns) const;
  /// "+1.250", of a difference.
  [[nodiscard]] std::string change(std::int64_t ns) const;
  /// "span(ms)"
  [[nodiscard]] std::string heading(std::string_view what) const;
};
/// Milliseconds; microseconds where the longest time of the table is below 10 of them.
[[nodiscard]] TimeUnit unit_for(std::int64_t longest_ns);

/// "600.000 us": a time of a sentence, in its own unit.
[[nodiscard]] std::string time_text(std::int64_t ns);

}  // namespace shardmark::bench
