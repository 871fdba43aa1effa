#pragma once

// What the files of this folder share: one `append_calls` per op.

#include "core/cuda/translate/translate.hpp"

#include <cstdint>
#include <initializer_list>

namespace shardmark::cuda {

/// A matrix of f32, bf16 or f16; Error for other dtypes.
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
void append(Translation& to, Translation&& more);

/// Each of a batch of products: elements from one matrix to the next.
struct MatmulBatch {
  std::int64_t count{1}, a{0}, b{0}, c{0};
};
/// One Matmul, without its bias, for each of a batch: op's tensors, which are not empty, are the
/// first matrices.
[[nodiscard]] MatmulCall matmul_call(const Matmul& op, const Resources& resources,
                                     const MatmulBatch& batch = {});

void append_calls(const Matmul& op, const Resources& resources, Translation& to);
void append_calls(const Add& op, const Resources& resources, Translation& to);
void append_calls(const AddBias& op, const Resources& resources, Translation& to);
void append_calls(const SumRows& op, const Resources& resources, Translation& to);
void append_calls(const Copy& op, const Resources& resources, Translation& to);
void append_calls(const Fill& op, const Resources& resources, Translation& to);
void append_calls(const Combine& op, const Resources& resources, Translation& to);
void append_calls(const Divide& op, const Resources& resources, Translation& to);
void append_calls(const Gelu& op, const Resources& resources, Translation& to);
void append_calls(const GeluBackward& op, const Resources& resources, Translation& to);
void append_calls(const SwiGlu& op, const Resources& resources, Translation& to);
void append_calls(const SwiGluBackward& op, const Resources& resources, Translation& to);
void append_calls(const Norm& op, const Resources& resources, Translation& to);
void append_calls(const NormBackward& op, const Resources& resources, Translation& to);
void append_calls(const Attention& op, const Resources& resources, Translation& to);
void append_calls(const AttentionBackward& op, const Resources& resources, Translation& to);
void append_calls(const Rope& op, const Resources& resources, Translation& to);
void append_calls(const Embedding& op, const Resources& resources, Translation& to);
void append_calls(const EmbeddingBackward& op, const Resources& resources, Translation& to);
void append_calls(const RowMax& op, const Resources& resources, Translation& to);
void append_calls(const CrossEntropySum& op, const Resources& resources, Translation& to);
void append_calls(const CrossEntropyLoss& op, const Resources& resources, Translation& to);
void append_calls(const CrossEntropyBackward& op, const Resources& resources, Translation& to);
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

/// Communication returns its calls.
template <Communication O>
void append_calls(const O& op, const Resources& resources, Translation& to) {
  append(to, calls_of(op, resources));
}
/// The calls of one op alone.
template <Local O>
[[nodiscard]] Translation calls_of(const O& op, const Resources& resources) {
  Translation result;
  append_calls(op, resources, result);
  return result;
}

/// Places in a workspace, one after another, aligned to 256 bytes; null in one at null, of which
/// only the size is asked.
class Workspace {
 public:
  explicit Workspace(std::byte* data) : data_{data} {}
  std::byte* take(std::int64_t bytes) {
    constexpr std::int64_t alignment = 256;
    std::byte* const begin = data_ == nullptr ? nullptr : data_ + used_;
    used_ += (bytes + alignment - 1) / alignment * alignment;
    return begin;
  }
  [[nodiscard]] std::int64_t used_bytes() const { return used_; }

 private:
  std::byte* data_;
  std::int64_t used_{0};
};

/// Attention by matmuls and our own kernels: any dtype that matmuls have, any places.
void append_matmul_attention(const Attention& op, const Resources& resources, Translation& to);
void append_matmul_attention(const AttentionBackward& op, const Resources& resources,
                             Translation& to);
[[nodiscard]] std::int64_t matmul_attention_bytes(const Attention& op, const Resources& resources);
[[nodiscard]] std::int64_t matmul_attention_bytes(const AttentionBackward& op,
                                                  const Resources& resources);

[[nodiscard]] std::int64_t attention_workspace_bytes(const Attention& op,
                                                     const Resources& resources);
[[nodiscard]] std::int64_t attention_workspace_bytes(const AttentionBackward& op,
                                                     const Resources& resources);

}  // namespace shardmark::cuda
