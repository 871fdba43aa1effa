#pragma once

// What a CUDA backend asks libraries and the device for, as plain values: no CUDA header is needed
// to make, read or test them. Addresses are the device's, wherever that is.

#include "core/cuda/kernels/kernel.hpp"
#include "core/ops.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace shardmark::cuda {

/// A matrix as cuBLASLt sees it: element (r, c) is `r + c * leading_dimension` elements behind
/// data; of matrix m of a batch, `m * batch_stride` more.
struct ColumnMajor {
  std::byte* data{nullptr};
  DType dtype{DType::f32};
  std::int64_t rows{0}, cols{0}, leading_dimension{0}, batch_stride{0};
};
/// cublasLtMatmul: d = op(a) op(b) + beta d [+ bias], summed in f32, for each of a batch.
struct MatmulCall {
  ColumnMajor a, b, d;
  std::int64_t num_batches{1};
  bool transpose_a{false}, transpose_b{false};
  bool fast_tf32{false};     ///< CUBLAS_COMPUTE_32F_FAST_TF32 instead of CUBLAS_COMPUTE_32F
  float beta{0};             ///< 0, or 1: what d holds is added to
  std::byte* bias{nullptr};  ///< CUBLASLT_EPILOGUE_BIAS: d.rows elements of d's dtype; or null
  /// The largest power of two, at most 16, that divides the addresses and the bytes from one column
  /// and one matrix to the next of a, b and d. Below 16 only slower algorithms apply.
  int alignment_bytes{16};
};

/// cudaMemcpyAsync within the device, or between it and page-locked memory of the host;
/// cudaMemcpy2DAsync if `num_rows` is above 1.
struct MemoryCopy {
  const std::byte* from{nullptr};
  std::byte* to{nullptr};
  std::int64_t row_bytes{0}, num_rows{1}, from_pitch_bytes{0}, to_pitch_bytes{0};
};
/// cudaMemsetAsync or cudaMemset2DAsync with zeros.
struct MemoryClear {
  std::byte* to{nullptr};
  std::int64_t row_bytes{0}, num_rows{1}, pitch_bytes{0};
};

enum class NcclFunction : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  send,
  receive
};
struct NcclCall {
  NcclFunction function{NcclFunction::all_reduce};
  const std::byte* from{nullptr};  ///< null where the function or this member's part has none
  std::byte* to{nullptr};
  std::int64_t count{0};  ///< of all_gather what is sent, of reduce_scatter what is received
  DType dtype{DType::f32};
  Reduction reduction{Reduction::sum};  ///< of those that reduce; `avg` is ncclAvg
  int peer{-1};                         ///< a member: root, destination or source
};
/// Calls on the communicator of (group, lane). If there are several, or they send and receive, they
/// stand between ncclGroupStart and ncclGroupEnd. With `barrier`, the call moves a byte that
/// belongs to the communicator, and its addresses are null.
struct NcclGroup {
  Group group{};
  std::vector<NcclCall> calls;
  bool barrier{false};
};

/// A tensor of a cuDNN graph: batch, heads, rows, columns; strides in elements.
struct GraphTensor {
  std::byte* data{nullptr};
  DType dtype{DType::f32};
  std::array<std::int64_t, 4> dims{}, strides{};
};
/// cuDNN's scaled dot-product attention: forward, which also gives the log of the sum of
/// exponentials as `stats`, or backward, which takes o and stats (over these keys or over more).
/// Query row i sees the key rows j with i - left_bound < j <= i + right_bound (diagonal alignment
/// top left); every row sees at least one. Heads of q share those of k and v evenly.
struct FusedAttention {
  bool backward{false};
  float scale{1};
  std::optional<std::int64_t> left_bound{}, right_bound{};
  GraphTensor q, k, v, o, stats;
  GraphTensor d_o{}, dq{}, dk{}, dv{};  ///< backward only
};

/// One of our own kernels.
struct KernelCall {
  Kernel kernel;
  Launch launch;
};

/// cudaEventRecord and cudaStreamWaitEvent on the lane's stream.
struct EventRecord {
  Fence fence;
};
struct EventWait {
  Fence fence;
};

using Call = std::variant<MatmulCall, MemoryCopy, MemoryClear, NcclGroup, FusedAttention,
                          KernelCall, EventRecord, EventWait>;

/// What makes up an op, in order on its lane's stream; or, if `unavailable` says why, nothing does.
struct Translation {
  std::vector<Call> calls;
  std::string unavailable;
};

}  // namespace shardmark::cuda
