#include "core/reference/matrix.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"

namespace shardmark::reference {
namespace {

double element(const Tensor& tensor, std::int64_t index) {
  switch (tensor.dtype) {
    case DType::f32:
      return static_cast<double>(tensor.as<float>()[index]);
    case DType::bf16:
      return static_cast<double>(to_float(tensor.as<std::uint16_t>()[index]));
    case DType::i32:
      return static_cast<double>(tensor.as<std::int32_t>()[index]);
    case DType::f64:
      return tensor.as<double>()[index];
    case DType::f16:
      return static_cast<double>(from_f16(tensor.as<std::uint16_t>()[index]));
    case DType::i8:
      return static_cast<double>(tensor.as<std::int8_t>()[index]);
  }
  return 0;
}

void set_element(const Tensor& tensor, std::int64_t index, double value) {
  switch (tensor.dtype) {
    case DType::f32:
      tensor.as<float>()[index] = static_cast<float>(value);
      break;
    case DType::bf16:
      tensor.as<std::uint16_t>()[index] = to_bf16(static_cast<float>(value));
      break;
    case DType::i32:
      tensor.as<std::int32_t>()[index] =
          static_cast<std::int32_t>(static_cast<std::int64_t>(value));
      break;
    case DType::f64:
      tensor.as<double>()[index] = value;
      break;
    case DType::f16:
      tensor.as<std::uint16_t>()[index] = to_f16(static_cast<float>(value));
      break;
    case DType::i8:
      tensor.as<std::int8_t>()[index] = static_cast<std::int8_t>(static_cast<std::int64_t>(value));
      break;
  }
}

}  // namespace

Matrix::Matrix(const Tensor& tensor) : Matrix{tensor.rows(), tensor.cols()} {
  for (std::int64_t r = 0; r < rows_; ++r)
    for (std::int64_t c = 0; c < cols_; ++c)
      (*this)(r, c) = element(tensor, r * tensor.row_stride + c);
}

Matrix Matrix::transposed() const {
  Matrix result{cols_, rows_};
  for (std::int64_t r = 0; r < rows_; ++r)
    for (std::int64_t c = 0; c < cols_; ++c) result(c, r) = (*this)(r, c);
  return result;
}

void Matrix::store(const Tensor& tensor) const {
  SHARDMARK_CHECK(tensor.numel() == rows_ * cols_, rows_, 'x', cols_, " elements into ",
                  tensor.shape.to_string());
  const std::int64_t cols = tensor.cols();
  for (std::int64_t r = 0; r < tensor.rows(); ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      set_element(tensor, r * tensor.row_stride + c, (*this)[r * cols + c]);
}

}  // namespace shardmark::reference
