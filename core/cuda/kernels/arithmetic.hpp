#pragma once

// Reductions step by step, for every dtype; as core/cpu/reduce.cpp does them.

#include "core/cuda/kernels/view.hpp"
#include "core/ops.hpp"

#include <cstdint>
#include <type_traits>

namespace shardmark::cuda {

/// How a dtype is stored, and what it is computed in.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  SHARDMARK_BOTH static Value value(Stored x) { return x; }
  SHARDMARK_BOTH static Stored stored(Value x) { return x; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Value = float;
  SHARDMARK_BOTH static Value value(Stored x) { return to_float(x); }
  SHARDMARK_BOTH static Stored stored(Value x) { return to_bf16(x); }
};
struct F16 {
  using Stored = std::uint16_t;
  using Value = float;
  SHARDMARK_BOTH static Value value(Stored x) { return from_f16(x); }
  SHARDMARK_BOTH static Stored stored(Value x) { return to_f16(x); }
};

/// Integers as unsigned numbers, so that overflow wraps around.
template <class T>
SHARDMARK_BOTH T combined(T a, T b, Reduction reduction) {
  if (reduction == Reduction::max) return b > a ? b : a;
  if (reduction == Reduction::min) return b < a ? b : a;
  if constexpr (std::is_integral_v<T>) {
    const auto u = static_cast<std::uint32_t>(a), v = static_cast<std::uint32_t>(b);
    return static_cast<T>(reduction == Reduction::prod ? u * v : u + v);
  } else {
    return reduction == Reduction::prod ? a * b : a + b;
  }
}

/// Elements of any dtype.
struct Elements {
  std::byte* data;
  std::int64_t row_stride;
  DType dtype;
};

/// Calls function.operator()<Format>() with how the dtype is stored.
template <class Function>
SHARDMARK_BOTH void with_format(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f32:
      return function.template operator()<Plain<float>>();
    case DType::bf16:
      return function.template operator()<Bf16>();
    case DType::i32:
      return function.template operator()<Plain<std::int32_t>>();
    case DType::f64:
      return function.template operator()<Plain<double>>();
    case DType::f16:
      return function.template operator()<F16>();
    case DType::i8:
      return function.template operator()<Plain<std::int8_t>>();
  }
}

/// y = y (reduction) x.
struct CombineKernel {
  static constexpr const char* name = "shardmark_combine";
  Extent extent;
  Elements x, y;
  Reduction reduction;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    with_format(y.dtype,
                Step<width>{*this, row * x.row_stride + column, row * y.row_stride + column});
  }

 private:
  template <int width>
  struct Step {
    const CombineKernel& kernel;
    std::int64_t x_index, y_index;
    template <class Format>
    SHARDMARK_BOTH void operator()() const {
      using Packed = Packet<typename Format::Stored, width>;
      constexpr auto size = static_cast<std::int64_t>(sizeof(typename Format::Stored));
      const auto from = fetch<Packed>(kernel.x.data + x_index * size);
      auto to = fetch<Packed>(kernel.y.data + y_index * size);
      for (int i = 0; i < width; ++i)
        to.at[i] = Format::stored(
            combined(Format::value(to.at[i]), Format::value(from.at[i]), kernel.reduction));
      put(kernel.y.data + y_index * size, to);
    }
  };
};

/// x = x / divisor; integers are rounded towards zero.
struct DivideKernel {
  static constexpr const char* name = "shardmark_divide";
  Extent extent;
  Elements x;
  int divisor;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    with_format(x.dtype, Step<width>{*this, row * x.row_stride + column});
  }

 private:
  template <int width>
  struct Step {
    const DivideKernel& kernel;
    std::int64_t index;
    template <class Format>
    SHARDMARK_BOTH void operator()() const {
      using Value = typename Format::Value;
      using Packed = Packet<typename Format::Stored, width>;
      constexpr auto size = static_cast<std::int64_t>(sizeof(typename Format::Stored));
      const auto by =
          static_cast<std::conditional_t<std::is_integral_v<Value>, int, Value>>(kernel.divisor);
      auto values = fetch<Packed>(kernel.x.data + index * size);
      for (int i = 0; i < width; ++i)
        values.at[i] = Format::stored(static_cast<Value>(Format::value(values.at[i]) / by));
      put(kernel.x.data + index * size, values);
    }
  };
};

}  // namespace shardmark::cuda
