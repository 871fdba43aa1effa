#pragma once

#include <cstdint>
#include <string_view>

namespace shardmark::bench {

/// The programs that measure layers. They share everything but their options, sweeps and tables.
enum class Tool : std::uint8_t { tp, cp };
[[nodiscard]] constexpr std::string_view name_of(Tool tool) {
  return tool == Tool::cp ? "shardmark-cp" : "shardmark-tp";
}

}  // namespace shardmark::bench
