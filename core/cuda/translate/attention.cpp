// Attention by cuDNN where it has one, band by band. One band over all rows goes straight into the
// op's tensors; otherwise a band's result goes to the workspace and is merged (forward) or added
// (backward).
//
// In the workspace results have the operands' dtype, because cuDNN has no other: a merge of n bands
// in bf16 rounds a band's output once (relative 2^-9; in f16 2^-12) before the weights of all
// bands, which are at most 1, are applied. Sums are f32, and so is o where it accumulates.

#include "core/cuda/translate/bands.hpp"
#include "core/cuda/translate/parts.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardmark::cuda {
namespace {

/// Why cuDNN does not do it; empty if it does.
std::string refusal(const AttentionShape& shape, std::initializer_list<Tensor> tensors,
                    std::int64_t most_head_dim) {
  const DType dtype = tensors.begin()->dtype;
  if (dtype != DType::bf16 && dtype != DType::f16)
    return message("attention in ", name_of(dtype), "; cuDNN's is for 16-bit types");
  if (shape.head_dim % 8 != 0 || shape.head_dim > most_head_dim)
    return message("attention with heads of ", shape.head_dim,
                   " elements; cuDNN's takes multiples "
                   "of 8 up to ",
                   most_head_dim);
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype != dtype)
      return message("attention of ", name_of(dtype), " with a tensor of ", name_of(tensor.dtype),
                     "; cuDNN's takes one dtype");
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    const bool rows_aligned = tensor.rows() <= 1 || tensor.row_stride % 8 == 0;
    if (address % 16 != 0 || !rows_aligned)
      return "attention on tensors whose rows do not start at multiples of 16 bytes";
  }
  if (!bands_of(shape))
    return "attention of queries to keys whose places are spaced differently and only in part "
           "visible: no mask of cuDNN's";
  return {};
}

/// Rows [first, first + count) of each of a batch's sequences of `rows` rows.
GraphTensor graph_tensor(const Tensor& tensor, std::int64_t batch, std::int64_t heads,
                         std::int64_t head_dim, std::int64_t rows, std::int64_t first,
                         std::int64_t count) {
  return {tensor.data + first * tensor.row_stride * size_of(tensor.dtype),
          tensor.dtype,
          {batch, heads, count, head_dim},
          {rows * tensor.row_stride, head_dim, tensor.row_stride, 1}};
}
/// The same of lse: batch x heads x rows, contiguous.
GraphTensor graph_sums(std::byte* data, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                       std::int64_t first, std::int64_t count) {
  return {data + first * size_of(DType::f32),
          DType::f32,
          {batch, heads, count, 1},
          {heads * rows, rows, 1, 1}};
}

/// The band's part of query-like (q, o, ...) and key-like (k, v, ...) tensors.
struct Cut {
  const AttentionShape& shape;
  const Band& band;
  [[nodiscard]] GraphTensor of_queries(const Tensor& t) const {
    return graph_tensor(t, shape.batch, shape.heads, shape.head_dim, shape.seq, band.first_query,
                        band.num_queries);
  }
  [[nodiscard]] GraphTensor of_keys(const Tensor& t) const {
    return graph_tensor(t, shape.batch, shape.kv_heads, shape.head_dim, shape.num_keys(),
                        band.first_key, band.num_keys);
  }
  [[nodiscard]] GraphTensor sums(const Tensor& lse) const {
    return graph_sums(lse.data, shape.batch, shape.heads, shape.seq, band.first_query,
                      band.num_queries);
  }
  /// The same, copied: cuDNN's backward pass wants them without gaps.
  [[nodiscard]] GraphTensor packed_sums(const Tensor& lse, Workspace& workspace,
                                        Translation& to) const {
    const std::int64_t size = size_of(DType::f32), row_bytes = band.num_queries * size;
    std::byte* const packed = workspace.take(query_part_rows() * shape.heads * size);
    to.calls.emplace_back(MemoryCopy{lse.data + band.first_query * size, packed, row_bytes,
                                     shape.batch * shape.heads, shape.seq * size, row_bytes});
    return graph_sums(packed, shape.batch, shape.heads, band.num_queries, 0, band.num_queries);
  }
  [[nodiscard]] std::int64_t query_part_rows() const { return shape.batch * band.num_queries; }
  [[nodiscard]] std::int64_t key_part_rows() const { return shape.batch * band.num_keys; }
  /// A tensor of its own for the band's rows.
  [[nodiscard]] Tensor part(Workspace& workspace, std::int64_t rows, std::int64_t heads,
                            DType dtype) const {
    const std::int64_t cols = heads * shape.head_dim;
    return {1, dtype, {rows, cols}, 0, cols, workspace.take(rows * cols * size_of(dtype))};
  }
};

FusedAttention graph_of(const AttentionShape& shape, const Band& band, bool backward) {
  FusedAttention graph;
  graph.backward = backward;
  graph.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  graph.left_bound = band.left_bound;
  graph.right_bound = band.right_bound;
  return graph;
}

/// Whether one band is the whole op, so that cuDNN can write to the op's own tensors.
bool is_direct(const Attention& op, const std::vector<Band>& bands) {
  return !op.accumulate && op.o.dtype == op.q.dtype && bands.size() == 1 &&
         bands[0].num_queries == op.shape.seq;
}
bool is_direct(const AttentionBackward& op, const std::vector<Band>& bands) {
  const bool same_dtype =
      op.dq.dtype == op.q.dtype && op.dk.dtype == op.q.dtype && op.dv.dtype == op.q.dtype;
  return !op.accumulate && same_dtype && bands.size() == 1 &&
         bands[0].num_queries == op.shape.seq && bands[0].num_keys == op.shape.num_keys();
}

void append_merge(const Attention& op, const Cut& cut, const Tensor& o_part, float* part_sums,
                  Translation& to) {
  const AttentionShape& shape = op.shape;
  const RowMap rows{cut.band.num_queries, shape.seq, cut.band.first_query};
  const Sums sums{op.lse.as<float>(), shape.heads, shape.seq};
  const Sums parts{part_sums, shape.heads, cut.band.num_queries};
  append(to,
         MergeOutputKernel{{o_part.rows(), o_part.cols()},
                           view_of(op.o),
                           view_of(o_part),
                           sums,
                           parts,
                           rows,
                           shape.head_dim},
         width_of(shape.head_dim, {op.o, o_part}));
  append(to, MergeSumsKernel{{o_part.rows(), shape.heads}, sums, parts, rows}, 1);
}

void append_sum(const Tensor& part, const Tensor& whole, const RowMap& rows, Translation& to) {
  append(to, AddRowsKernel{{part.rows(), part.cols()}, view_of(part), view_of(whole), rows},
         width_of(part.cols(), {part, whole}));
}

std::string refusal(const Attention& op) {
  constexpr std::int64_t most_head_dim = 256;
  return refusal(op.shape, {op.q, op.k, op.v}, most_head_dim);
}
std::string refusal(const AttentionBackward& op) {
  constexpr std::int64_t most_head_dim = 128;  // on every architecture
  return refusal(op.shape, {op.q, op.k, op.v, op.o, op.d_o}, most_head_dim);
}
/// The bands if cuDNN is to do it, else nothing.
template <class O>
std::optional<std::vector<Band>> fused_bands(const O& op, const Resources& resources) {
  if (!resources.fused_attention || !refusal(op).empty()) return std::nullopt;
  return bands_of(op.shape);
}

}  // namespace

void append_calls(const Attention& op, const Resources& resources, Translation& to) {
  SHARDMARK_CHECK(op.lse.contiguous(), "attention with an lse that is not contiguous");
  const std::optional<std::vector<Band>> fused = fused_bands(op, resources);
  if (!fused) return append_matmul_attention(op, resources, to);
  const std::vector<Band>& bands = *fused;
  const bool direct = is_direct(op, bands);
  if (!direct && !op.accumulate) {
    append_calls(Fill{op.o, 0}, resources, to);
    append_calls(Fill{op.lse, -std::numeric_limits<float>::infinity()}, resources, to);
  }
  for (const Band& band : bands) {
    const Cut cut{op.shape, band};
    Workspace workspace{resources.workspace};
    FusedAttention graph = graph_of(op.shape, band, false);
    graph.q = cut.of_queries(op.q);
    graph.k = cut.of_keys(op.k);
    graph.v = cut.of_keys(op.v);
    if (direct) {
      graph.o = cut.of_queries(op.o);
      graph.stats = cut.sums(op.lse);
      to.calls.emplace_back(graph);
      continue;
    }
    const Tensor o_part = cut.part(workspace, cut.query_part_rows(), op.shape.heads, op.q.dtype);
    std::byte* const part_sums =
        workspace.take(cut.query_part_rows() * op.shape.heads * size_of(DType::f32));
    graph.o = graph_tensor(o_part, op.shape.batch, op.shape.heads, op.shape.head_dim,
                           band.num_queries, 0, band.num_queries);
    graph.stats = graph_sums(part_sums, op.shape.batch, op.shape.heads, band.num_queries, 0,
                             band.num_queries);
    to.calls.emplace_back(graph);
    append_merge(op, cut, o_part, reinterpret_cast<float*>(part_sums), to);
  }
}

void append_calls(const AttentionBackward& op, const Resources& resources, Translation& to) {
  SHARDMARK_CHECK(op.lse.contiguous(), "attention with an lse that is not contiguous");
  const AttentionShape& shape = op.shape;
  const std::optional<std::vector<Band>> fused = fused_bands(op, resources);
  if (!fused) return append_matmul_attention(op, resources, to);
  const std::vector<Band>& bands = *fused;
  const bool direct = is_direct(op, bands);
  if (!direct && !op.accumulate)
    for (const Tensor& gradient : {op.dq, op.dk, op.dv})
      append_calls(Fill{gradient, 0}, resources, to);
  for (const Band& band : bands) {
    const Cut cut{shape, band};
    Workspace workspace{resources.workspace};
    FusedAttention graph = graph_of(shape, band, true);
    graph.q = cut.of_queries(op.q);
    graph.k = cut.of_keys(op.k);
    graph.v = cut.of_keys(op.v);
    graph.o = cut.of_queries(op.o);
    graph.d_o = cut.of_queries(op.d_o);
    graph.stats = cut.sums(op.lse);
    if (direct) {
      graph.dq = cut.of_queries(op.dq);
      graph.dk = cut.of_keys(op.dk);
      graph.dv = cut.of_keys(op.dv);
      to.calls.emplace_back(graph);
      continue;
    }
    const Tensor dq = cut.part(workspace, cut.query_part_rows(), shape.heads, op.q.dtype);
    const Tensor dk = cut.part(workspace, cut.key_part_rows(), shape.kv_heads, op.q.dtype);
    const Tensor dv = cut.part(workspace, cut.key_part_rows(), shape.kv_heads, op.q.dtype);
    if (band.num_queries < shape.seq) graph.stats = cut.packed_sums(op.lse, workspace, to);
    const auto whole = [&](const Tensor& part, std::int64_t heads, std::int64_t rows) {
      return graph_tensor(part, shape.batch, heads, shape.head_dim, rows, 0, rows);
    };
    graph.dq = whole(dq, shape.heads, band.num_queries);
    graph.dk = whole(dk, shape.kv_heads, band.num_keys);
    graph.dv = whole(dv, shape.kv_heads, band.num_keys);
    to.calls.emplace_back(graph);
    const RowMap key_rows{band.num_keys, shape.num_keys(), band.first_key};
    append_sum(dq, op.dq, {band.num_queries, shape.seq, band.first_query}, to);
    append_sum(dk, op.dk, key_rows, to);
    append_sum(dv, op.dv, key_rows, to);
  }
}

std::int64_t attention_workspace_bytes(const Attention& op, const Resources& resources) {
  const std::optional<std::vector<Band>> bands = fused_bands(op, resources);
  if (!bands) return matmul_attention_bytes(op, resources);
  std::int64_t most = 0;
  if (is_direct(op, *bands)) return most;
  for (const Band& band : *bands) {
    Workspace workspace{nullptr};
    const std::int64_t values = op.shape.batch * band.num_queries * op.shape.heads;
    workspace.take(values * op.shape.head_dim * size_of(op.q.dtype));
    workspace.take(values * size_of(DType::f32));
    most = std::max(most, workspace.used_bytes());
  }
  return most;
}

std::int64_t attention_workspace_bytes(const AttentionBackward& op, const Resources& resources) {
  const std::optional<std::vector<Band>> bands = fused_bands(op, resources);
  if (!bands) return matmul_attention_bytes(op, resources);
  std::int64_t most = 0;
  if (is_direct(op, *bands)) return most;
  const std::int64_t row_bytes = op.shape.batch * op.shape.head_dim * size_of(op.q.dtype);
  for (const Band& band : *bands) {
    Workspace workspace{nullptr};
    workspace.take(band.num_queries * op.shape.heads * row_bytes);
    workspace.take(band.num_keys * op.shape.kv_heads * row_bytes);
    workspace.take(band.num_keys * op.shape.kv_heads * row_bytes);
    if (band.num_queries < op.shape.seq)
      workspace.take(op.shape.batch * band.num_queries * op.shape.heads * size_of(DType::f32));
    most = std::max(most, workspace.used_bytes());
  }
  return most;
}

std::string why_not_fused(const Op& op) {
  if (const auto* o = std::get_if<Attention>(&op)) return refusal(*o);
  if (const auto* o = std::get_if<AttentionBackward>(&op)) return refusal(*o);
  return {};
}

}  // namespace shardmark::cuda
