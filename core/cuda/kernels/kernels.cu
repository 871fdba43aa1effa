// Our own kernels on the device: how blocks and warps share the work of the functors in the other
// files of this folder. Tests run the same functors on the host, in the same shares and order of
// joining (tests/cuda/evaluate.hpp).

#include "core/cuda/kernels/launch.hpp"
#include "core/error.hpp"

#include <cuda_runtime.h>

#include <bit>

namespace shardmark::cuda {
namespace {

template <int width, class F>
__global__ void __launch_bounds__(element_block) run_elements(const __grid_constant__ F kernel) {
  run_packet<width>(kernel, blockIdx.x * blockDim.x + threadIdx.x);
}

/// The state of the lane that is `distance` apart in the bits of its number.
template <class State>
__device__ State of_other_lane(const State& state, int distance) {
  constexpr unsigned all_lanes = 0xFFFFFFFF;
  struct Words {
    unsigned at[sizeof(State) / sizeof(unsigned)];
  };
  Words words = std::bit_cast<Words>(state);
  for (unsigned& word : words.at) word = __shfl_xor_sync(all_lanes, word, distance);
  return std::bit_cast<State>(words);
}

/// What the threads (x) of a row have together. A row of more than a warp has the block to itself.
template <class F>
__device__ typename F::State joined_of_row(typename F::State state) {
  using State = typename F::State;
  for (int distance = warp / 2; distance > 0; distance /= 2)
    state = F::joined(state, of_other_lane(state, distance));
  if (blockDim.x == warp) return state;
  __shared__ State states[row_block / warp];
  if (threadIdx.x % warp == 0) states[threadIdx.x / warp] = state;
  __syncthreads();
  state = states[0];
  for (unsigned w = 1; w < blockDim.x / warp; ++w) state = F::joined(state, states[w]);
  return state;
}

template <int width, class F>
__global__ void __launch_bounds__(row_block) run_rows(const __grid_constant__ F kernel) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= kernel.extent.rows) return;  // whole warps, or the whole block
  const typename F::State state =
      joined_of_row<F>(take_row_share<width>(kernel, row, threadIdx.x, blockDim.x));
  apply_row_share<width>(kernel, state, row, threadIdx.x, blockDim.x);
  if (threadIdx.x == 0) kernel.finish(state, row);
}

template <class F>
__global__ void __launch_bounds__(column_block_x* column_block_y)
    run_columns(const __grid_constant__ F kernel) {
  using State = typename F::State;
  __shared__ State states[column_block_y][column_block_x];
  const std::int64_t column = std::int64_t{blockIdx.x} * column_block_x + threadIdx.x;
  const bool is_there = column < kernel.extent.cols;
  states[threadIdx.y][threadIdx.x] =
      is_there ? take_column_share(kernel, column, threadIdx.y, column_block_y) : F::start();
  __syncthreads();
  if (threadIdx.y > 0 || !is_there) return;
  State state = F::start();
  for (unsigned y = 0; y < column_block_y; ++y) state = F::joined(state, states[y][threadIdx.x]);
  kernel.finish(state, column);
}

template <int width, AlternativeOf<ElementKernel> F>
void start_one(const F& kernel, const dim3& grid, const dim3& block, cudaStream_t stream) {
  run_elements<width><<<grid, block, 0, stream>>>(kernel);
}
template <int width, AlternativeOf<RowKernel> F>
void start_one(const F& kernel, const dim3& grid, const dim3& block, cudaStream_t stream) {
  run_rows<width><<<grid, block, 0, stream>>>(kernel);
}
template <int width, AlternativeOf<ColumnKernel> F>
void start_one(const F& kernel, const dim3& grid, const dim3& block, cudaStream_t stream) {
  run_columns<<<grid, block, 0, stream>>>(kernel);
}

}  // namespace

void start(const Kernel& kernel, const Launch& launch, Stream stream) {
  const dim3 grid{launch.grid}, block{launch.block_x, launch.block_y};
  std::visit(
      [&](const auto& k) {
        if (launch.width == wide)
          start_one<wide>(k, grid, block, stream);
        else
          start_one<1>(k, grid, block, stream);
      },
      kernel);
  const cudaError_t code = cudaGetLastError();
  SHARDMARK_CHECK(code == cudaSuccess, name_of(kernel), ": ", cudaGetErrorName(code), ", ",
                  cudaGetErrorString(code));
}

}  // namespace shardmark::cuda
