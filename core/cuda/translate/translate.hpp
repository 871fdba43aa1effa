#pragma once

// Ops as calls of CUDA libraries and kernels. Pure functions: what an op becomes depends on nothing
// but the op and the memory it is given.

#include "core/cuda/translate/call.hpp"

#include <cstdint>
#include <vector>

namespace shardmark::cuda {

/// What an op may use besides its tensors.
struct Resources {
  /// workspace_bytes(op) bytes, aligned to 256; the lane's own.
  std::byte* workspace{nullptr};
  /// Of Rope: rotary_table(op), on the device.
  const float* rotary_table{nullptr};
  /// Matmuls of f32 may round their operands to TF32 (10 bits of fraction).
  bool allow_tf32{false};
};

/// The calls that are the op. Throws Error for tensors that the op does not allow (strided ones of
/// a collective, say).
[[nodiscard]] Translation translate(const Op& op, const Resources& resources);

/// Scratch memory that translate(op) uses: partial results of attention.
[[nodiscard]] std::int64_t workspace_bytes(const Op& op);

/// A row for each of op.seq places: head_dim/2 cosines, then as many sines.
[[nodiscard]] std::vector<float> rotary_table(const Rope& op);

}  // namespace shardmark::cuda
