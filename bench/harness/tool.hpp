#pragma once

#include <cstdint>
#include <string_view>

namespace shardmark::bench {

/// The programs that measure layers. They share everything but their options, sweeps and tables.
enum class Tool : std::uint8_t { tp, cp, pp };
[[nodiscard]] constexpr std::string_view name_of(Tool tool) {
  switch (tool) {
    case Tool::tp:
      return "shardmark-tp";
    case Tool::cp:
      return "shardmark-cp";
    case Tool::pp:
      return "shardmark-pp";
  }
  return "";
}

}  // namespace shardmark::bench
