#pragma once

#include "core/tensor.hpp"

#include <cstdint>
#include <vector>

namespace shardmark::reference {

/// The elements of a tensor as f64, row after row; a tensor with one value per token is also read
/// by a single index.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols)
      : rows_{rows}, cols_{cols}, values_(static_cast<std::size_t>(rows * cols)) {}
  /// A copy of what `tensor` holds.
  explicit Matrix(const Tensor& tensor);

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  double* row(std::int64_t r) { return values_.data() + r * cols_; }
  [[nodiscard]] const double* row(std::int64_t r) const { return values_.data() + r * cols_; }
  double& operator()(std::int64_t r, std::int64_t c) { return row(r)[c]; }
  double operator()(std::int64_t r, std::int64_t c) const { return row(r)[c]; }
  double& operator[](std::int64_t index) { return values_[static_cast<std::size_t>(index)]; }
  double operator[](std::int64_t index) const { return values_[static_cast<std::size_t>(index)]; }

  [[nodiscard]] Matrix transposed() const;
  /// Rounds every element to the dtype of `tensor`, which has as many elements.
  void store(const Tensor& tensor) const;

 private:
  std::int64_t rows_, cols_;
  std::vector<double> values_;
};

}  // namespace shardmark::reference
