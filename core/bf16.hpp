#pragma once

#include <bit>
#include <cstdint>

namespace shardmark {

// bf16 is the upper half of an f32; it is stored as std::uint16_t.

[[nodiscard]] constexpr float to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even. A NaN stays a (quiet) NaN of the same sign; values beyond the
/// largest bf16 become infinite. Free of branches, so that loops over it vectorise.
[[nodiscard]] constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const std::uint32_t quiet_nan = bits | 0x00400000U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<std::uint16_t>((is_nan ? quiet_nan : rounded) >> 16);
}

}  // namespace shardmark
