#include "core/reference/matrix.hpp"
#include "core/reference/ops.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark::reference {
namespace {

/// to += factor * row. The innermost loop of a product: along rows, so that it vectorises.
void add_scaled(const double* row, double factor, std::int64_t count, double* to) {
  for (std::int64_t j = 0; j < count; ++j) to[j] += factor * row[j];
}

}  // namespace

void run(const Matmul& op) {
  const Matrix a = op.transpose_a ? Matrix{op.a}.transposed() : Matrix{op.a};
  const Matrix b = op.transpose_b ? Matrix{op.b}.transposed() : Matrix{op.b};
  Matrix c = op.accumulate ? Matrix{op.c} : Matrix{op.c.rows(), op.c.cols()};
  for (std::int64_t i = 0; i < c.rows(); ++i)
    for (std::int64_t k = 0; k < b.rows(); ++k) add_scaled(b.row(k), a(i, k), c.cols(), c.row(i));
  if (op.bias) {
    const Matrix bias{op.bias};
    for (std::int64_t i = 0; i < c.rows(); ++i)
      for (std::int64_t j = 0; j < c.cols(); ++j) c(i, j) += bias[j];
  }
  c.store(op.c);
}

void run(const Add& op) {
  Matrix y{op.a};
  const Matrix b{op.b};
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t c = 0; c < y.cols(); ++c) y(r, c) += b(r, c);
  y.store(op.y);
}

void run(const AddBias& op) {
  Matrix y{op.x};
  const Matrix bias{op.bias};
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t c = 0; c < y.cols(); ++c) y(r, c) += bias[c];
  y.store(op.y);
}

void run(const SumRows& op) {
  const Matrix x{op.x};
  Matrix y = op.accumulate ? Matrix{op.y} : Matrix{1, x.cols()};
  for (std::int64_t r = 0; r < x.rows(); ++r)
    for (std::int64_t c = 0; c < x.cols(); ++c) y[c] += x(r, c);
  y.store(op.y);
}

void run(const Copy& op) { Matrix{op.x}.store(op.y); }

void run(const Fill& op) {
  Matrix x{op.x.rows(), op.x.cols()};
  for (std::int64_t i = 0; i < op.x.numel(); ++i) x[i] = static_cast<double>(op.value);
  x.store(op.x);
}

void run(const Combine& op) {
  Matrix y{op.y};
  const Matrix x{op.x};
  for (std::int64_t i = 0; i < op.y.numel(); ++i) switch (op.reduction) {
      case Reduction::sum:
      case Reduction::avg:
        y[i] += x[i];
        break;
      case Reduction::prod:
        y[i] *= x[i];
        break;
      case Reduction::max:
        y[i] = std::max(y[i], x[i]);
        break;
      case Reduction::min:
        y[i] = std::min(y[i], x[i]);
        break;
    }
  y.store(op.y);
}

void run(const Divide& op) {
  const bool is_integer = op.x.dtype == DType::i32 || op.x.dtype == DType::i8;
  Matrix x{op.x};
  for (std::int64_t i = 0; i < op.x.numel(); ++i)
    x[i] = is_integer ? std::trunc(x[i] / op.divisor) : x[i] / op.divisor;
  x.store(op.x);
}

}  // namespace shardmark::reference
