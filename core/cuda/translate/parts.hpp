#pragma once

// What the files of this folder share: one `calls_of` per op.

#include "core/cuda/translate/translate.hpp"

#include <cstdint>
#include <initializer_list>

namespace shardmark::cuda {

/// A matrix of f32 or bf16; Error for other dtypes.
[[nodiscard]] View view_of(const Tensor& tensor);
/// A vector along the columns of a matrix: row 0.
[[nodiscard]] View row_vector(const Tensor& vector);
/// A vector with a value per row: column 0.
[[nodiscard]] View column_vector(const Tensor& vector);

/// Rows and columns of elementwise work: one long row where all tensors are contiguous.
[[nodiscard]] Extent extent_of(std::initializer_list<Tensor> tensors);
/// `wide` if rows have `cols` columns for it and packets of all tensors are aligned for accesses of
/// 16 bytes, else 1. With `one_row` tensors are seen as one long row.
[[nodiscard]] int width_of(std::int64_t cols, std::initializer_list<Tensor> tensors,
                           bool one_row = false);

/// A kernel call, unless there is nothing to do.
void append(Translation& to, const Kernel& kernel, int width);
void append(Translation& to, const Translation& more);

[[nodiscard]] Translation calls_of(const Matmul& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Add& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AddBias& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const SumRows& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Copy& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Fill& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Combine& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Divide& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Gelu& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const GeluBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const SwiGlu& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const SwiGluBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Norm& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const NormBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Attention& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AttentionBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Rope& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Embedding& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const EmbeddingBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const RowMax& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const CrossEntropySum& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const CrossEntropyLoss& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const CrossEntropyBackward& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AllReduce& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AllGather& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const ReduceScatter& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AllToAll& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const AllToAllV& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Broadcast& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Reduce& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Gather& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Scatter& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const SendRecv& op, const Resources& resources);
[[nodiscard]] Translation calls_of(const Barrier& op, const Resources& resources);

[[nodiscard]] std::int64_t attention_workspace_bytes(const Attention& op);
[[nodiscard]] std::int64_t attention_workspace_bytes(const AttentionBackward& op);

}  // namespace shardmark::cuda
