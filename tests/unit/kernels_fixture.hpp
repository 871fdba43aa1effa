#pragma once

// Small matrices in f64 as reference, and tensors with room between their rows.

#include "core/bf16.hpp"
#include "core/cpu/arena.hpp"
#include "core/cpu/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

namespace shardmark {

struct Matrix {
  std::int64_t rows{0}, cols{0};
  std::vector<double> values;

  Matrix(std::int64_t num_rows, std::int64_t num_cols)
      : rows{num_rows}, cols{num_cols}, values(static_cast<std::size_t>(num_rows * num_cols)) {}
  double& operator()(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  /// Same shape, each value through `function`.
  [[nodiscard]] Matrix map(const std::function<double(double)>& function) const {
    Matrix result = *this;
    for (double& value : result.values) value = function(value);
    return result;
  }
};

/// Norm of the difference over norm of the reference.
inline double relative_error(const Matrix& result, const Matrix& reference) {
  EXPECT_EQ(result.values.size(), reference.values.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < reference.values.size(); ++i) {
    difference += std::pow(result.values[i] - reference.values[i], 2);
    size += std::pow(reference.values[i], 2);
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

/// d loss / d x by central differences.
inline Matrix numeric_gradient(Matrix& x, const std::function<double()>& loss) {
  constexpr double step = 1e-5;
  Matrix gradient{x.rows, x.cols};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const double kept = x.values[i];
    x.values[i] = kept + step;
    const double above = loss();
    x.values[i] = kept - step;
    const double below = loss();
    x.values[i] = kept;
    gradient.values[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(const Matrix& a, const Matrix& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) total += a.values[i] * b.values[i];
  return total;
}

class CountingHook final : public TileHook {
 public:
  [[nodiscard]] bool wants_tiles() const override { return wants; }
  void between_tiles() override { ++num_calls; }
  bool wants{false};
  int num_calls{0};
};

class KernelTest : public ::testing::Test {
 protected:
  /// A tensor whose rows are `gap` elements apart, all set to a value that no kernel may touch.
  Tensor empty(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t gap = 0) {
    Tensor whole;
    whole.buffer = ++num_buffers_;
    whole.dtype = dtype;
    whole.shape = {rows, cols + gap};
    whole.row_stride = cols + gap;
    whole.data = arena_.allocate(whole.bytes());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols + gap; ++c) set(whole, r, c, untouched);
    return gap == 0 ? whole : whole.column_block(0, cols);
  }
  Tensor place(const Matrix& values, DType dtype, std::int64_t gap = 0) {
    const Tensor tensor = empty(values.rows, values.cols, dtype, gap);
    for (std::int64_t r = 0; r < values.rows; ++r)
      for (std::int64_t c = 0; c < values.cols; ++c) set(tensor, r, c, values(r, c));
    return tensor;
  }
  Tensor place_ids(const std::vector<std::int32_t>& ids) {
    Tensor tensor;
    tensor.buffer = ++num_buffers_;
    tensor.dtype = DType::i32;
    tensor.shape = {static_cast<std::int64_t>(ids.size())};
    tensor.row_stride = tensor.cols();
    tensor.data = arena_.allocate(tensor.bytes());
    std::memcpy(tensor.data, ids.data(), ids.size() * sizeof ids[0]);
    return tensor;
  }
  static Matrix read(const Tensor& tensor) {
    Matrix result{tensor.rows(), tensor.cols()};
    for (std::int64_t r = 0; r < result.rows; ++r)
      for (std::int64_t c = 0; c < result.cols; ++c) result(r, c) = get(tensor, r, c);
    return result;
  }
  static std::vector<std::byte> bytes(const Tensor& tensor) {
    std::vector<std::byte> result;
    const std::int64_t size = size_of(tensor.dtype);
    for (std::int64_t r = 0; r < tensor.rows(); ++r) {
      const std::byte* const row = tensor.data + r * tensor.row_stride * size;
      result.insert(result.end(), row, row + tensor.cols() * size);
    }
    return result;
  }
  /// True if the gap after every row (of a tensor made with one) is as it was.
  static bool gap_untouched(const Tensor& tensor) {
    for (std::int64_t r = 0; r < tensor.rows(); ++r)
      for (std::int64_t c = tensor.cols(); c < tensor.row_stride; ++c)
        if (get(tensor, r, c) != untouched) return false;
    return true;
  }
  /// Normal values, rounded to the dtype so that the reference sees what the kernel sees.
  Matrix random(std::int64_t rows, std::int64_t cols, DType dtype, double scale = 1) {
    Matrix result{rows, cols};
    std::normal_distribution<double> normal{0, scale};
    for (double& value : result.values) value = rounded(normal(generator_), dtype);
    return result;
  }
  Matrix random_integers(std::int64_t rows, std::int64_t cols, int largest) {
    Matrix result{rows, cols};
    std::uniform_int_distribution<int> uniform{-largest, largest};
    for (double& value : result.values) value = uniform(generator_);
    return result;
  }
  static double rounded(double value, DType dtype) {
    const auto single = static_cast<float>(value);
    return dtype == DType::bf16 ? to_float(to_bf16(single)) : single;
  }
  const char* run(const Op& op) { return kernels_.run(op, hook_); }
  static double tolerance(DType dtype) { return dtype == DType::f32 ? 1e-5 : 2e-2; }

  static constexpr double untouched = -77;
  static constexpr DType dtypes[] = {DType::f32, DType::bf16};
  Arena arena_{std::int64_t{1} << 28};
  Kernels kernels_{1, arena_};
  CountingHook hook_;
  std::mt19937 generator_{7};

 private:
  static double get(const Tensor& tensor, std::int64_t r, std::int64_t c) {
    const std::int64_t at = r * tensor.row_stride + c;
    return tensor.dtype == DType::bf16 ? to_float(tensor.as<std::uint16_t>()[at])
                                       : tensor.as<float>()[at];
  }
  static void set(const Tensor& tensor, std::int64_t r, std::int64_t c, double value) {
    const std::int64_t at = r * tensor.row_stride + c;
    if (tensor.dtype == DType::bf16)
      tensor.as<std::uint16_t>()[at] = to_bf16(static_cast<float>(value));
    else
      tensor.as<float>()[at] = static_cast<float>(value);
  }
  std::uint32_t num_buffers_{0};
};

}  // namespace shardmark
