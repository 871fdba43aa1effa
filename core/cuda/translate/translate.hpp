#pragma once

// Ops as calls of CUDA libraries and kernels. Pure functions: what an op becomes depends on nothing
// but the op and the memory it is given.

#include "core/cuda/translate/call.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::cuda {

/// What an op may use besides its tensors.
struct Resources {
  /// workspace_bytes(op, resources) bytes, aligned to 256; the lane's own.
  std::byte* workspace{nullptr};
  /// Of Rope: rotary_table(op), on the device.
  const float* rotary_table{nullptr};
  /// Matmuls of f32 may round their operands to TF32 (10 bits of fraction).
  bool allow_tf32{false};
  /// Attention may be cuDNN's where that has it; otherwise it is matmuls.
  bool fused_attention{true};
  /// Of attention by matmuls: the most that scores may take at once, unless those of one query row
  /// of one group of heads take more.
  std::int64_t most_score_bytes{std::int64_t{256} << 20};
};

/// The calls that are the op replace those in `to`, whose memory is used again. Throws Error for
/// tensors that the op does not allow (strided ones of a collective, say).
void translate(const Op& op, const Resources& resources, Translation& to);
/// The same, as a new value.
[[nodiscard]] Translation translate(const Op& op, const Resources& resources);

/// Scratch memory that translate(op, resources) uses, whatever resources.workspace is: partial
/// results or scores of attention.
[[nodiscard]] std::int64_t workspace_bytes(const Op& op, const Resources& resources = {});

/// Why no cuDNN attention is the op, so that it becomes matmuls; empty if one is, or the op is no
/// attention.
[[nodiscard]] std::string why_not_fused(const Op& op);

/// A row for each of op.seq places: head_dim/2 cosines, then as many sines.
[[nodiscard]] std::vector<float> rotary_table(const Rope& op);

}  // namespace shardmark::cuda
