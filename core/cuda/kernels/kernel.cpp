#include "core/cuda/kernels/kernel.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark::cuda {
namespace {

std::uint32_t blocks(std::int64_t count, std::int64_t per_block) {
  constexpr std::int64_t most = 0x7FFFFFFF;  // blocks of a grid, and indices of run_packet
  const std::int64_t num_blocks = (count + per_block - 1) / per_block;
  SHARDMARK_CHECK(num_blocks * per_block <= most, "a kernel of ", count,
                  " threads or rows is too large; at most ", most);
  return static_cast<std::uint32_t>(num_blocks);
}

template <AlternativeOf<ElementKernel> F>
Launch launch(const F& kernel, int width) {
  const std::int64_t packets = kernel.extent.rows * ((kernel.extent.cols + width - 1) / width);
  return {blocks(packets, element_block), element_block, 1, width};
}

/// Up to 512 threads for a row, each with two packets or more; short rows share a block, a warp
/// each.
template <AlternativeOf<RowKernel> F>
Launch launch(const F& kernel, int width) {
  constexpr std::int64_t rows_of_short = 8;
  const std::int64_t packets = (kernel.extent.cols + width - 1) / width;
  const std::int64_t warps = std::clamp<std::int64_t>(packets / (2 * warp), 1, row_block / warp);
  const std::int64_t rows = warps == 1 ? rows_of_short : 1;
  return {blocks(kernel.extent.rows, rows), static_cast<std::uint32_t>(warps * warp),
          static_cast<std::uint32_t>(rows), width};
}

template <AlternativeOf<ColumnKernel> F>
Launch launch(const F& kernel, int) {
  return {blocks(kernel.extent.cols, column_block_x), column_block_x, column_block_y, 1};
}

}  // namespace

Launch launch_of(const Kernel& kernel, int width) {
  return std::visit([&](const auto& k) { return launch(k, width); }, kernel);
}

std::string_view name_of(const Kernel& kernel) {
  return std::visit([](const auto& k) -> std::string_view { return k.name; }, kernel);
}

}  // namespace shardmark::cuda
