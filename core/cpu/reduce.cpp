#include "core/cpu/reduce.hpp"

#include "core/bf16.hpp"
#include "core/cpu/clones.hpp"
#include "core/cpu/stream.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace shardmark {
namespace {

// How a dtype is stored, and what it is computed in.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored x) { return to_float(x); }
  static Stored store(Value x) { return to_bf16(x); }
};
struct F16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored x) { return from_f16(x); }
  static Stored store(Value x) { return to_f16(x); }
};

/// a and b as unsigned numbers where they are integers, so that overflow wraps around.
template <class T, class Function>
T wrapping(T a, T b, const Function& function) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(function(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return function(a, b);
  }
}
template <Reduction reduction, class T>
T combined(T a, T b) {
  if constexpr (reduction == Reduction::prod)
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  else if constexpr (reduction == Reduction::max)
    return b > a ? b : a;
  else if constexpr (reduction == Reduction::min)
    return b < a ? b : a;
  else
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
}

template <class F>
using Stored = typename F::Stored;
template <class F>
using Value = typename F::Value;

template <class F>
SHARDMARK_CLONES void load(const Stored<F>* x, Value<F>* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = F::load(x[i]);
}
template <class F>
SHARDMARK_CLONES void store(const Value<F>* x, Stored<F>* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = F::store(x[i]);
}
template <class F, Reduction reduction>
SHARDMARK_CLONES void combine_two(const Stored<F>* a, const Stored<F>* b, Value<F>* y,
                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = combined<reduction>(F::load(a[i]), F::load(b[i]));
}
template <class F, Reduction reduction>
SHARDMARK_CLONES void combine_next(const Stored<F>* x, Value<F>* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = combined<reduction>(y[i], F::load(x[i]));
}
template <class F, Reduction reduction>
SHARDMARK_CLONES void combine_stored(const Stored<F>* x, Stored<F>* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = F::store(combined<reduction>(F::load(y[i]), F::load(x[i])));
}
template <class T>
SHARDMARK_CLONES void divide_values(T* x, std::int64_t n, int divisor) {
  const auto by = static_cast<std::conditional_t<std::is_integral_v<T>, int, T>>(divisor);
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(x[i] / by);
}

template <class Function>
void with_format(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f32:
      return function(Plain<float>{});
    case DType::bf16:
      return function(Bf16{});
    case DType::i32:
      return function(Plain<std::int32_t>{});
    case DType::f64:
      return function(Plain<double>{});
    case DType::f16:
      return function(F16{});
    case DType::i8:
      return function(Plain<std::int8_t>{});
  }
}

template <Reduction reduction>
using Constant = std::integral_constant<Reduction, reduction>;
template <class Function>
void with_reduction(Reduction reduction, const Function& function) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::avg:
      return function(Constant<Reduction::sum>{});
    case Reduction::prod:
      return function(Constant<Reduction::prod>{});
    case Reduction::max:
      return function(Constant<Reduction::max>{});
    case Reduction::min:
      return function(Constant<Reduction::min>{});
  }
}

/// Elements reduced at a time: what is computed stays in the first-level cache.
constexpr std::int64_t block = 2048;

template <class F, Reduction reduction>
void reduce_blocks(std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
                   std::int64_t numel, int divisor) {
  alignas(64) std::array<Value<F>, block> values;
  alignas(64) std::array<Stored<F>, block> narrow;
  constexpr bool is_narrow = !std::is_same_v<Stored<F>, Value<F>>;
  const std::int64_t bytes = numel * static_cast<std::int64_t>(sizeof(Stored<F>));
  const Streaming streaming{bytes * static_cast<std::int64_t>(targets.size())};
  for (std::int64_t first = 0; first < numel; first += block) {
    const std::int64_t n = std::min(block, numel - first);
    const auto source = [&](std::size_t i) {
      return reinterpret_cast<const Stored<F>*>(sources[i]) + first;
    };
    if (sources.size() == 1)
      load<F>(source(0), values.data(), n);
    else
      combine_two<F, reduction>(source(0), source(1), values.data(), n);
    for (std::size_t i = 2; i < sources.size(); ++i)
      combine_next<F, reduction>(source(i), values.data(), n);
    if (divisor != 1) divide_values(values.data(), n, divisor);
    if constexpr (is_narrow) store<F>(values.data(), narrow.data(), n);
    const auto* result =
        reinterpret_cast<const std::byte*>(is_narrow ? static_cast<const void*>(narrow.data())
                                                     : static_cast<const void*>(values.data()));
    const std::int64_t offset = first * static_cast<std::int64_t>(sizeof(Stored<F>));
    const std::int64_t size = n * static_cast<std::int64_t>(sizeof(Stored<F>));
    for (std::byte* target : targets)
      if (std::ranges::find(sources, target) == sources.end())
        streaming.copy(result, target + offset, size);
      else
        std::memcpy(target + offset, result, static_cast<std::size_t>(size));
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, std::int64_t numel) {
  const int divisor = reduction == Reduction::avg ? static_cast<int>(sources.size()) : 1;
  with_format(dtype, [&](auto format) {
    with_reduction(reduction, [&](auto constant) {
      reduce_blocks<decltype(format), decltype(constant)::value>(sources, targets, numel, divisor);
    });
  });
}

void combine(DType dtype, Reduction reduction, const std::byte* x, std::byte* y,
             std::int64_t numel) {
  with_format(dtype, [&]<class F>(F) {
    with_reduction(reduction, [&](auto constant) {
      combine_stored<F, decltype(constant)::value>(reinterpret_cast<const Stored<F>*>(x),
                                                   reinterpret_cast<Stored<F>*>(y), numel);
    });
  });
}

void divide(DType dtype, std::byte* x, std::int64_t numel, int divisor) {
  SHARDMARK_CHECK(divisor > 0, "divide by ", divisor);
  with_format(dtype, [&]<class F>(F) {
    auto* elements = reinterpret_cast<Stored<F>*>(x);
    if constexpr (std::is_same_v<Stored<F>, Value<F>>) {
      divide_values(elements, numel, divisor);
      return;
    }
    alignas(64) std::array<Value<F>, block> values;
    for (std::int64_t first = 0; first < numel; first += block) {
      const std::int64_t n = std::min(block, numel - first);
      load<F>(elements + first, values.data(), n);
      divide_values(values.data(), n, divisor);
      store<F>(values.data(), elements + first, n);
    }
  });
}

}  // namespace shardmark
