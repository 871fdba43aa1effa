#include "core/cpu/reduce.hpp"

#include "core/bf16.hpp"

#include <algorithm>
#include <array>
#include <cstring>

// Loops compiled once per instruction set and chosen when the program is loaded. That choice runs
// before the sanitizers are ready, so they get the plain loops.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SHARDMARK_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SHARDMARK_CLONES
#endif

namespace shardmark {
namespace {

/// Elements reduced at a time: the accumulators stay in the first-level cache.
constexpr std::int64_t block = 2048;

SHARDMARK_CLONES void widen(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]);
}
SHARDMARK_CLONES void narrow(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_bf16(x[i]);
}
SHARDMARK_CLONES void add(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}
SHARDMARK_CLONES void larger(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}
SHARDMARK_CLONES void add_widened(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += to_float(x[i]);
}
SHARDMARK_CLONES void larger_widened(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]) > y[i] ? to_float(x[i]) : y[i];
}
SHARDMARK_CLONES void add_integers(const std::uint32_t* x, std::uint32_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}
SHARDMARK_CLONES void larger_integers(const std::int32_t* x, std::int32_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}
SHARDMARK_CLONES void add_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_bf16(to_float(x[i]) + to_float(y[i]));
}
SHARDMARK_CLONES void larger_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]) > to_float(y[i]) ? x[i] : y[i];
}

/// Elements of `dtype` as they come from memory, accumulated as `Accumulator`.
template <class Element, class Accumulator>
struct Steps {
  void (*load)(const Element*, Accumulator*, std::int64_t);
  void (*combine)(const Element*, Accumulator*, std::int64_t);
  void (*store)(const Accumulator*, Element*, std::int64_t);
};

template <class T>
void copy_elements(const T* from, T* to, std::int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

template <class Element, class Accumulator>
void reduce_blocks(const Steps<Element, Accumulator>& steps,
                   std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
                   std::int64_t numel) {
  alignas(64) std::array<Accumulator, block> accumulated;
  for (std::int64_t first = 0; first < numel; first += block) {
    const std::int64_t n = std::min(block, numel - first);
    const auto source = [&](std::size_t i) {
      return reinterpret_cast<const Element*>(sources[i]) + first;
    };
    steps.load(source(0), accumulated.data(), n);
    for (std::size_t i = 1; i < sources.size(); ++i)
      steps.combine(source(i), accumulated.data(), n);
    for (std::byte* target : targets)
      steps.store(accumulated.data(), reinterpret_cast<Element*>(target) + first, n);
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, std::int64_t numel) {
  const bool sum = reduction == Reduction::sum;
  if (dtype == DType::f32) {
    const Steps<float, float> steps{copy_elements<float>, sum ? add : larger, copy_elements<float>};
    reduce_blocks(steps, sources, targets, numel);
  } else if (dtype == DType::bf16) {
    const Steps<std::uint16_t, float> steps{widen, sum ? add_widened : larger_widened, narrow};
    reduce_blocks(steps, sources, targets, numel);
  } else if (sum) {
    const Steps<std::uint32_t, std::uint32_t> steps{copy_elements<std::uint32_t>, add_integers,
                                                    copy_elements<std::uint32_t>};
    reduce_blocks(steps, sources, targets, numel);
  } else {
    const Steps<std::int32_t, std::int32_t> steps{copy_elements<std::int32_t>, larger_integers,
                                                  copy_elements<std::int32_t>};
    reduce_blocks(steps, sources, targets, numel);
  }
}

void reduce_bf16(Reduction reduction, const std::uint16_t* x, std::uint16_t* accumulated,
                 std::int64_t numel) {
  (reduction == Reduction::sum ? add_bf16 : larger_bf16)(x, accumulated, numel);
}

}  // namespace shardmark
