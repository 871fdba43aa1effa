#include "core/tensor.hpp"

#include "core/error.hpp"

namespace shardmark {
namespace {

Tensor shifted(Tensor tensor, std::int64_t elements) {
  tensor.offset += elements;
  if (tensor.data != nullptr) tensor.data += elements * size_of(tensor.dtype);
  return tensor;
}

bool ranges_meet(std::int64_t a, std::int64_t a_count, std::int64_t b, std::int64_t b_count) {
  return a < b + b_count && b < a + a_count;
}

}  // namespace

Tensor Tensor::row_block(std::int64_t first, std::int64_t count) const {
  SHARDMARK_CHECK(first >= 0 && count >= 0 && first + count <= shape[0], "rows ", first, " to ",
                  first + count, " of a tensor of shape ", shape.to_string());
  const std::int64_t rows_per_entry =
      shape.num_dims() == 1 || shape[0] == 0 ? 1 : rows() / shape[0];
  const std::int64_t step = shape.num_dims() == 1 ? 1 : row_stride * rows_per_entry;
  Tensor block = shifted(*this, first * step);
  block.shape.set(0, count);
  if (shape.num_dims() == 1) block.row_stride = count;
  return block;
}

Tensor Tensor::column_block(std::int64_t first, std::int64_t count) const {
  SHARDMARK_CHECK(first >= 0 && count >= 0 && first + count <= cols(), "columns ", first, " to ",
                  first + count, " of a tensor of shape ", shape.to_string());
  Tensor block = shifted(*this, first);
  block.shape.set(shape.num_dims() - 1, count);
  return block;
}

Tensor Tensor::reshape(const Shape& to) const {
  SHARDMARK_CHECK(contiguous() && to.numel() == numel(), "cannot see shape ", shape.to_string(),
                  " as ", to.to_string());
  Tensor result = *this;
  result.shape = to;
  result.row_stride = to.cols();
  return result;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.buffer == 0 || a.buffer != b.buffer || a.numel() == 0 || b.numel() == 0) return false;
  const auto span = [](const Tensor& t) { return (t.rows() - 1) * t.row_stride + t.cols(); };
  if (!ranges_meet(a.offset, span(a), b.offset, span(b))) return false;
  const std::int64_t stride = a.row_stride;
  if (stride != b.row_stride || stride == 0 || a.dtype != b.dtype) return true;
  const std::int64_t a_column = a.offset % stride;
  const std::int64_t b_column = b.offset % stride;
  if (a_column + a.cols() > stride || b_column + b.cols() > stride) return true;
  return ranges_meet(a_column, a.cols(), b_column, b.cols()) &&
         ranges_meet(a.offset / stride, a.rows(), b.offset / stride, b.rows());
}

}  // namespace shardmark
