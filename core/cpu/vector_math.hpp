#pragma once

// Sixteen floats at a time, written once and compiled for several instruction sets. Every loop over
// a row uses the same code for whole vectors and for the tail, so an element's result does not
// depend on where it stands: that is what makes sharded and serial runs equal bit for bit.

#include "core/cpu/clones.hpp"
#include "core/tensor.hpp"

#include <cstdint>
#include <cstring>

/// For everything a kernel calls: only inlined code is compiled for the kernel's instruction set.
#define SHARDMARK_INLINE __attribute__((always_inline))

namespace shardmark::kernels {

inline constexpr std::int64_t width = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

SHARDMARK_INLINE inline Floats splat(float value) { return Floats{} + value; }
template <class To, class From>
SHARDMARK_INLINE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

SHARDMARK_INLINE inline Floats widen(Halves halves) {
  return bits_as<Floats>(__builtin_convertvector(halves, Words) << 16);
}
/// Round to nearest even; a NaN stays a NaN.
SHARDMARK_INLINE inline Halves narrow(Floats values) {
  const Words bits = bits_as<Words>(values);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words quiet = (bits >> 16) | 0x40U;
  return __builtin_convertvector(values == values ? rounded : quiet, Halves);
}

/// One row of a tensor of f32 or bf16, read and written as f32.
struct Row {
  std::byte* data{nullptr};
  bool is_bf16{false};

  /// The row from a later column on.
  [[nodiscard]] SHARDMARK_INLINE Row from(std::int64_t column) const {
    return {data + column * (is_bf16 ? 2 : 4), is_bf16};
  }
  /// Elements [first, first + count), count <= 16; the rest of the vector is `fill`.
  [[nodiscard]] SHARDMARK_INLINE Floats load(std::int64_t first, std::int64_t count,
                                             float fill = 0.0F) const {
    return is_bf16 ? load_bf16(first, count, fill) : load_f32(first, count, fill);
  }
  SHARDMARK_INLINE void store(std::int64_t first, std::int64_t count, Floats values) const {
    if (is_bf16)
      store_as<std::uint16_t>(first, count, narrow(values));
    else
      store_as<float>(first, count, values);
  }

 private:
  [[nodiscard]] SHARDMARK_INLINE Floats load_f32(std::int64_t first, std::int64_t count,
                                                 float fill) const {
    Floats values = splat(fill);
    const std::byte* from = data + first * 4;
    if (count >= width) [[likely]]
      std::memcpy(&values, from, sizeof values);
    else
      std::memcpy(&values, from, static_cast<std::size_t>(count) * 4);
    return values;
  }
  [[nodiscard]] SHARDMARK_INLINE Floats load_bf16(std::int64_t first, std::int64_t count,
                                                  float fill) const {
    Halves halves = narrow(splat(fill));
    const std::byte* from = data + first * 2;
    if (count >= width) [[likely]]
      std::memcpy(&halves, from, sizeof halves);
    else
      std::memcpy(&halves, from, static_cast<std::size_t>(count) * 2);
    return widen(halves);
  }
  template <class Element, class Values>
  SHARDMARK_INLINE void store_as(std::int64_t first, std::int64_t count, Values values) const {
    std::byte* to = data + first * static_cast<std::int64_t>(sizeof(Element));
    if (count >= width) [[likely]]
      std::memcpy(to, &values, sizeof values);
    else
      std::memcpy(to, &values, static_cast<std::size_t>(count) * sizeof(Element));
  }
};
SHARDMARK_INLINE inline Row row_of(const Tensor& tensor, std::int64_t row) {
  return {tensor.data + row * tensor.row_stride * size_of(tensor.dtype),
          tensor.dtype == DType::bf16};
}
SHARDMARK_INLINE inline Row row_of(float* data) {
  return {reinterpret_cast<std::byte*>(data), false};
}
/// Calls body(first, count) for the vectors of a row.
template <class Body>
SHARDMARK_INLINE inline void for_vectors(std::int64_t cols, Body body) {
  for (std::int64_t first = 0; first < cols; first += width)
    body(first, cols - first < width ? cols - first : width);
}

SHARDMARK_INLINE inline float sum(Floats values) {
  float total = 0;
  for (std::int64_t step = width / 2; step > 0; step /= 2)
    for (std::int64_t i = 0; i < step; ++i) values[i] += values[i + step];
  total = values[0];
  return total;
}
SHARDMARK_INLINE inline Floats larger(Floats a, Floats b) { return b > a ? b : a; }
SHARDMARK_INLINE inline float maximum(Floats values) {
  for (std::int64_t step = width / 2; step > 0; step /= 2)
    for (std::int64_t i = 0; i < step; ++i)
      values[i] = values[i + step] > values[i] ? values[i + step] : values[i];
  return values[0];
}
/// exp(x) to 2e-7 of its value. Exactly 1 at 0, exactly 0 below -87.33, infinity above 88.37 (the
/// last half binade before overflow is given up), NaN for NaN.
SHARDMARK_INLINE inline Floats exp(Floats x) {
  constexpr float lowest = -87.33F;
  constexpr float highest = 88.37F;
  // Adding 1.5 * 2^23 pushes the fraction out: what is left is the nearest integer n, also in the
  // low bits, from where the shift makes it the exponent of 2^n.
  constexpr float magic = 12582912.0F;
  const Floats shifted = x * 1.44269504F + magic;
  const Floats n = shifted - magic;
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats p = splat(1.0F / 720);
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  Floats result = p * bits_as<Floats>((bits_as<Words>(shifted) << 23) + 0x3f800000U);
  // Far out n does not fit an exponent and the result means nothing.
  result = x < lowest ? splat(0) : result;
  return x > highest ? splat(__builtin_inff()) : result;
}

/// 1 / (1 + exp(-x)); exactly 0 and 1 far out, exactly 0.5 at 0.
SHARDMARK_INLINE inline Floats sigmoid(Floats x) { return 1.0F / (1.0F + exp(-x)); }

/// erf(x) to 4e-7: a rational function in x fitted to least maximum error on [-4, 4]; exactly -1
/// and 1 outside, where the true value rounds to that.
SHARDMARK_INLINE inline Floats erf(Floats x) {
  const Floats z = x * x;
  Floats p = splat(1.9747974420e-06F);
  p = p * z + 2.8803833993e-04F;
  p = p * z + 4.0036300197e-03F;
  p = p * z + 5.3467437625e-02F;
  p = p * z + 1.9624900818e-01F;
  p = p * z + 1.1283789873F;
  Floats q = splat(3.7480356697e-05F);
  q = q * z + 1.2163505889e-03F;
  q = q * z + 1.5444397926e-02F;
  q = q * z + 1.1647639424e-01F;
  q = q * z + 5.0725233555e-01F;
  q = q * z + 1.0F;
  const Floats inside = x * p / q;
  return x >= 4.0F ? splat(1) : (x <= -4.0F ? splat(-1) : inside);
}

}  // namespace shardmark::kernels
