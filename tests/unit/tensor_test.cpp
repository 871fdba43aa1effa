#include "core/tensor.hpp"

#include "core/error.hpp"

#include <gtest/gtest.h>

#include <array>

namespace shardmark {
namespace {

Tensor whole(const Shape& shape, std::uint32_t buffer = 1) {
  return {buffer, DType::f32, shape, 0, shape.cols(), nullptr};
}

TEST(Tensor, RowBlocksStayContiguous) {
  const Tensor block = whole({10, 6}).row_block(3, 4);
  EXPECT_EQ(block.offset, 18);
  EXPECT_EQ(block.shape, (Shape{4, 6}));
  EXPECT_TRUE(block.contiguous());
  const Tensor outer = whole({4, 3, 5}).row_block(2, 2);
  EXPECT_EQ(outer.offset, 30);
  EXPECT_EQ(outer.rows(), 6);
  const Tensor vector = whole({12}).row_block(5, 3);
  EXPECT_EQ(vector.offset, 5);
  EXPECT_EQ(vector.row_stride, 3);
}

TEST(Tensor, ColumnBlocksAreStridedViews) {
  std::array<float, 60> values{};
  Tensor tensor = whole({10, 6});
  tensor.data = reinterpret_cast<std::byte*>(values.data());
  const Tensor block = tensor.column_block(2, 3);
  EXPECT_EQ(block.shape, (Shape{10, 3}));
  EXPECT_EQ(block.row_stride, 6);
  EXPECT_FALSE(block.contiguous());
  EXPECT_EQ(block.bytes(), 120);
  EXPECT_EQ(block.row_block(4, 2).as<float>(), values.data() + 26);
  EXPECT_TRUE(block.row_block(4, 1).contiguous());
  EXPECT_EQ(block.column_block(1, 2).offset, 3);
}

TEST(Tensor, BlocksStayInside) {
  const Tensor tensor = whole({10, 6});
  EXPECT_THROW((void)tensor.row_block(8, 3), Error);
  EXPECT_THROW((void)tensor.row_block(-1, 3), Error);
  EXPECT_THROW((void)tensor.column_block(4, 3), Error);
  EXPECT_EQ(tensor.row_block(10, 0).numel(), 0);
}

TEST(Tensor, ReshapeNeedsTheSameElementsInARow) {
  const Tensor tensor = whole({10, 6});
  EXPECT_EQ(tensor.reshape({2, 5, 6}).rows(), 10);
  EXPECT_EQ(tensor.reshape({60}).row_stride, 60);
  EXPECT_THROW((void)tensor.reshape({7, 9}), Error);
  EXPECT_THROW((void)tensor.column_block(0, 3).reshape({30}), Error);
}

TEST(Overlap, IsExactForBlocksOfOneBuffer) {
  const Tensor tensor = whole({10, 6});
  EXPECT_TRUE(overlap(tensor, tensor.row_block(9, 1)));
  EXPECT_FALSE(overlap(tensor.row_block(0, 5), tensor.row_block(5, 5)));
  EXPECT_FALSE(overlap(tensor.column_block(0, 3), tensor.column_block(3, 3)));
  EXPECT_TRUE(overlap(tensor.column_block(0, 4), tensor.column_block(3, 3)));
  const Tensor corner = tensor.row_block(0, 5).column_block(0, 3);
  EXPECT_FALSE(overlap(corner, tensor.row_block(5, 5).column_block(0, 3)));
  EXPECT_TRUE(overlap(corner, tensor.row_block(4, 5).column_block(2, 1)));
}

TEST(Overlap, NeedsOneBufferAndElements) {
  const Tensor tensor = whole({10, 6});
  EXPECT_FALSE(overlap(tensor, whole({10, 6}, 2)));
  EXPECT_FALSE(overlap(Tensor{}, Tensor{}));
  EXPECT_FALSE(overlap(tensor, tensor.row_block(3, 0)));
}

/// Where strides differ the answer may only err on the side of "yes".
TEST(Overlap, OfDifferentStridesIsCautious) {
  const Tensor tensor = whole({10, 6});
  EXPECT_TRUE(overlap(tensor.column_block(0, 3), tensor.reshape({60}).row_block(3, 3)));
  EXPECT_FALSE(overlap(tensor.row_block(0, 5), tensor.reshape({60}).row_block(30, 3)));
}

}  // namespace
}  // namespace shardmark
