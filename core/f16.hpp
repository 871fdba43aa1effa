#pragma once

#include <bit>
#include <cstdint>

namespace shardmark {

// f16 is IEEE 754 binary16, stored as std::uint16_t. Both conversions are exact or rounded as the
// standard says, also for subnormal numbers, and free of branches, so that loops over them
// vectorise. The technique, adding a power of two that pushes the fraction to its place, is
// F. Giesen's (2012).

[[nodiscard]] constexpr float from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7FFFU) << 13;
  const std::uint32_t rebased = magnitude + (112U << 23);
  const float subnormal =
      std::bit_cast<float>(magnitude + (113U << 23)) - std::bit_cast<float>(113U << 23);
  const bool is_subnormal = magnitude < (1U << 23);
  const bool is_infinite_or_nan = magnitude >= (31U << 23);
  const std::uint32_t finite = is_subnormal ? std::bit_cast<std::uint32_t>(subnormal) : rebased;
  const std::uint32_t bits = is_infinite_or_nan ? rebased + (112U << 23) : finite;
  return std::bit_cast<float>(bits | static_cast<std::uint32_t>(half & 0x8000U) << 16);
}

/// Rounds to nearest, ties to even. A NaN becomes the quiet NaN of the same sign; values from 65520
/// on become infinite.
[[nodiscard]] constexpr std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // The sum of 0.5 and a number below 2^-14 has units of 2^-24, as a subnormal f16 has.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - (126U << 23);
  const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
  const std::uint32_t special = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  const std::uint32_t result = magnitude >= (143U << 23) ? special : finite;
  return static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000U));
}

}  // namespace shardmark
