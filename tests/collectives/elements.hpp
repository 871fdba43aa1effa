#pragma once

#include "core/bf16.hpp"
#include "core/f16.hpp"
#include "core/types.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

namespace shardmark {

inline constexpr DType all_dtypes[] = {DType::f32, DType::bf16, DType::i32,
                                       DType::f64, DType::f16,  DType::i8};

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline double load(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(read_as<float>(at));
    case DType::f64:
      return read_as<double>(at);
    case DType::i32:
      return read_as<std::int32_t>(at);
    case DType::i8:
      return read_as<std::int8_t>(at);
    case DType::bf16:
      return static_cast<double>(to_float(read_as<std::uint16_t>(at)));
    case DType::f16:
      return static_cast<double>(from_f16(read_as<std::uint16_t>(at)));
  }
  return 0;
}

/// `value` as the dtype would hold it.
inline double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f64:
      return value;
    case DType::i32:
      return static_cast<std::int32_t>(value);
    case DType::i8:
      return static_cast<std::int8_t>(static_cast<std::int32_t>(value));
    case DType::bf16:
      return static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
    case DType::f16:
      return static_cast<double>(from_f16(to_f16(static_cast<float>(value))));
  }
  return 0;
}

inline std::vector<double> load_all(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(size_of(dtype)))
    values.push_back(load(dtype, bytes.data() + at));
  return values;
}

}  // namespace shardmark
