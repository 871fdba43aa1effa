#pragma once

// All kernels of our own, as one closed variant, and how they are launched. What a thread does is
// here too, so that a test on the host runs the very code that the device runs.

#include "core/cuda/kernels/arithmetic.hpp"
#include "core/cuda/kernels/elementwise.hpp"
#include "core/cuda/kernels/merge.hpp"
#include "core/cuda/kernels/rows.hpp"
#include "core/cuda/kernels/scores.hpp"

#include <cstdint>
#include <string_view>
#include <variant>

namespace shardmark::cuda {

using ElementKernel =
    std::variant<AddKernel, AddBiasKernel, AddRowsKernel, CastKernel, FillKernel, CombineKernel,
                 DivideKernel, GeluKernel, GeluBackwardKernel, SwiGluKernel, SwiGluBackwardKernel,
                 RopeKernel, EmbeddingKernel, EmbeddingBackwardKernel, CrossEntropyLossKernel,
                 CrossEntropyBackwardKernel, MergeOutputKernel, MergeSumsKernel,
                 SoftmaxBackwardKernel>;
using RowKernel = std::variant<NormKernel, NormBackwardKernel, RowMaxKernel, CrossEntropySumKernel,
                               SoftmaxKernel, OutputSlopeKernel>;
using ColumnKernel = std::variant<SumRowsKernel, NormWeightsKernel>;
using Kernel = decltype(joined(ElementKernel{}, RowKernel{}, ColumnKernel{}));

/// Blocks, threads of a block (x, y), and how many elements a thread takes at once: 1 or `wide`.
/// A thread of an element kernel takes one packet. Of a row kernel, a block has block_y rows and
/// block_x threads for each; of a column kernel it has block_x columns and block_y threads for
/// each.
struct Launch {
  std::uint32_t grid{1}, block_x{1}, block_y{1};
  int width{1};
};
[[nodiscard]] Launch launch_of(const Kernel& kernel, int width);
[[nodiscard]] std::string_view name_of(const Kernel& kernel);

inline constexpr std::uint32_t element_block = 256, column_block_x = 32, column_block_y = 16,
                               warp = 32, row_block = 512;

/// Packets of a row; the last one may be short.
[[nodiscard]] SHARDMARK_BOTH inline std::uint32_t packets_per_row(const Extent& extent, int width) {
  return static_cast<std::uint32_t>((extent.cols + width - 1) / width);
}

/// What thread `index` of an element kernel does.
template <int width, class F>
SHARDMARK_BOTH void run_packet(const F& kernel, std::uint32_t index) {
  const std::uint32_t per_row = packets_per_row(kernel.extent, width);
  const std::int64_t row = index / per_row;
  if (row >= kernel.extent.rows) return;
  std::int64_t column = std::int64_t{index % per_row} * width;
  if (column + width <= kernel.extent.cols)
    kernel.template run<width>(row, column);
  else
    for (; column < kernel.extent.cols; ++column) kernel.template run<1>(row, column);
}

/// The share of one of `num_threads` threads in the state of a row.
template <int width, class F>
SHARDMARK_BOTH typename F::State take_row_share(const F& kernel, std::int64_t row,
                                                std::uint32_t thread, std::uint32_t num_threads) {
  typename F::State state = F::start();
  const std::int64_t cols = kernel.extent.cols, step = std::int64_t{num_threads} * width;
  for (std::int64_t column = std::int64_t{thread} * width; column < cols; column += step)
    if (column + width <= cols)
      kernel.template take<width>(state, row, column);
    else
      for (std::int64_t c = column; c < cols; ++c) kernel.template take<1>(state, row, c);
  return state;
}
/// Its share of making the row from the state of all.
template <int width, class F>
SHARDMARK_BOTH void apply_row_share(const F& kernel, const typename F::State& state,
                                    std::int64_t row, std::uint32_t thread,
                                    std::uint32_t num_threads) {
  const std::int64_t cols = kernel.extent.cols, step = std::int64_t{num_threads} * width;
  for (std::int64_t column = std::int64_t{thread} * width; column < cols; column += step)
    if (column + width <= cols)
      kernel.template apply<width>(state, row, column);
    else
      for (std::int64_t c = column; c < cols; ++c) kernel.template apply<1>(state, row, c);
}
/// The share of one of `num_threads` threads in the state of a column.
template <class F>
SHARDMARK_BOTH typename F::State take_column_share(const F& kernel, std::int64_t column,
                                                   std::uint32_t thread,
                                                   std::uint32_t num_threads) {
  typename F::State state = F::start();
  for (std::int64_t row = thread; row < kernel.extent.rows; row += num_threads)
    kernel.template take<1>(state, row, column);
  return state;
}

}  // namespace shardmark::cuda
