#pragma once

#include "core/types.hpp"

#include <cstdint>

namespace shardmark {

/// A non-owning view of a buffer, seen as a matrix of `rows()` rows that start `row_stride`
/// elements apart. `data` is null on the record backend; everything else is the same on every
/// backend. A default-constructed tensor means "not there" (an absent bias, say).
struct Tensor {
  std::uint32_t buffer{0};  ///< id given by Rank::allocate; 0 = no tensor
  DType dtype{DType::f32};
  Shape shape{};
  std::int64_t offset{0};      ///< elements from the start of the buffer to the first element
  std::int64_t row_stride{0};  ///< elements from one row to the next; cols() when contiguous
  std::byte* data{nullptr};    ///< address of the first element, null on the record backend

  [[nodiscard]] explicit operator bool() const { return buffer != 0; }
  [[nodiscard]] std::int64_t rows() const { return shape.rows(); }
  [[nodiscard]] std::int64_t cols() const { return shape.cols(); }
  [[nodiscard]] std::int64_t numel() const { return shape.numel(); }
  /// Bytes of the elements in view, as a count.
  [[nodiscard]] std::int64_t bytes() const { return numel() * size_of(dtype); }
  [[nodiscard]] bool contiguous() const { return row_stride == cols() || rows() <= 1; }

  /// Rows [first, first + count) of the first dim. Same buffer, still contiguous if this is.
  [[nodiscard]] Tensor row_block(std::int64_t first, std::int64_t count) const;
  /// Columns [first, first + count) of the last dim: a strided view.
  [[nodiscard]] Tensor column_block(std::int64_t first, std::int64_t count) const;
  /// The same elements under another shape; only for contiguous tensors of equal numel.
  [[nodiscard]] Tensor reshape(const Shape& to) const;

  /// Typed address of the first element. T must match dtype (bf16 is std::uint16_t).
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// True if two views can name the same element. Column blocks of one buffer with equal strides are
/// compared exactly; otherwise the answer errs on the side of "yes".
[[nodiscard]] bool overlap(const Tensor& a, const Tensor& b);

}  // namespace shardmark
