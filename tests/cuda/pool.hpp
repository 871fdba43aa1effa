#pragma once

// Tensors in one block of memory, so that everything an op must not touch can be seen.

#include "core/ops.hpp"
#include "core/reference/backend.hpp"
#include "core/reference/matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace shardmark::cuda {

class Pool {
 public:
  static constexpr std::int64_t capacity = std::int64_t{4} << 20, alignment = 256;

  Pool() : memory_(capacity + alignment) {
    auto* const data = memory_.data();
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    begin_ = data + (alignment - address % alignment) % alignment;
    clear();
  }
  /// In `capacity` aligned bytes that somebody else owns.
  explicit Pool(std::byte* memory) : begin_{memory} { clear(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Forgets all tensors.
  void clear() {
    used_ = 0;
    std::fill(begin_, begin_ + capacity, std::byte{0x7B});
  }
  /// Rows `gap` elements apart, the first one `shift` elements behind an aligned address.
  Tensor empty(const Shape& shape, DType dtype, std::int64_t gap = 0, std::int64_t shift = 0) {
    Tensor tensor{1, dtype, shape, 0, shape.cols() + gap, begin_ + used_ + shift * size_of(dtype)};
    used_ += (tensor.rows() * tensor.row_stride + shift) * size_of(dtype);
    used_ += alignment - used_ % alignment;
    EXPECT_LE(used_, capacity);
    return tensor;
  }
  Tensor random(const Shape& shape, DType dtype, std::int64_t gap = 0, std::int64_t shift = 0) {
    std::normal_distribution<double> normal;
    return filled(shape, dtype, gap, shift, [&] { return normal(generator_); });
  }
  /// Small whole numbers, whose sums and products are exact.
  Tensor integers(const Shape& shape, DType dtype, int most = 3, std::int64_t gap = 0,
                  std::int64_t shift = 0) {
    std::uniform_int_distribution<int> uniform{-most, most};
    return filled(shape, dtype, gap, shift, [&] { return uniform(generator_); });
  }
  Tensor ids(std::int64_t tokens, int from, int to) {
    std::uniform_int_distribution<int> uniform{from, to};
    return filled({tokens}, DType::i32, 0, 0, [&] { return uniform(generator_); });
  }

  [[nodiscard]] std::vector<std::byte> snapshot() const { return {begin_, begin_ + used_}; }
  void restore(const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), begin_);
  }
  [[nodiscard]] const std::byte* begin() const { return begin_; }

 private:
  template <class Draw>
  Tensor filled(const Shape& shape, DType dtype, std::int64_t gap, std::int64_t shift,
                const Draw& draw) {
    const Tensor tensor = empty(shape, dtype, gap, shift);
    reference::Matrix values{tensor.rows(), tensor.cols()};
    for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = draw();
    values.store(tensor);
    return tensor;
  }

  std::vector<std::byte> memory_;
  std::byte* begin_;
  std::int64_t used_{0};
  std::mt19937 generator_{11};
};

inline void run_reference(const Op& op) {
  ReferenceBackend backend;
  const std::string path = "test";
  backend.execute({0, Lane::compute, &path, op});
}

/// The same element of two copies of the pool's memory.
struct Results {
  const Pool& pool;
  const std::vector<std::byte>& before;
  const std::vector<std::byte>& expected;
  const std::vector<std::byte>& result;

  [[nodiscard]] Tensor within(const Tensor& tensor, const std::vector<std::byte>& copy) const {
    Tensor moved = tensor;
    moved.data = const_cast<std::byte*>(copy.data()) + (tensor.data - pool.begin());
    return moved;
  }
};

/// The written tensors agree within `tolerance` of each element and of `share` of the largest (at
/// least 1, the size of the operands, which may cancel), and nothing else was written.
inline void expect_agreement(const Op& op, const Results& r, double tolerance,
                             const std::string& what, double share = 0.05) {
  std::vector<bool> may_change(r.before.size(), false);
  for (const Tensor& tensor : touches(op).writes) {
    const reference::Matrix expected{r.within(tensor, r.expected)},
        result{r.within(tensor, r.result)};
    double largest = 1;
    for (std::int64_t i = 0; i < tensor.numel(); ++i)
      if (std::isfinite(expected[i])) largest = std::max(largest, std::abs(expected[i]));
    const std::int64_t size = size_of(tensor.dtype);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const std::int64_t at = (tensor.data - r.pool.begin()) +
                              (i / tensor.cols() * tensor.row_stride + i % tensor.cols()) * size;
      for (std::int64_t b = at; b < at + size; ++b) may_change[static_cast<std::size_t>(b)] = true;
      const double allowed = tolerance * (std::abs(expected[i]) + share * largest);
      const bool agrees = expected[i] == result[i] || std::abs(expected[i] - result[i]) <= allowed;
      if (agrees) continue;
      ADD_FAILURE() << what << ": element " << i << " of " << tensor.shape.to_string() << " is "
                    << result[i] << ", not " << expected[i];
      return;
    }
  }
  for (std::size_t i = 0; i < r.before.size(); ++i)
    if (!may_change[i] && r.result[i] != r.before[i]) {
      ADD_FAILURE() << what << ": byte " << i << " was written, which is no result's";
      return;
    }
}

}  // namespace shardmark::cuda
