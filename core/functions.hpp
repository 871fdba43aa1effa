#pragma once

// The functions layers call: each checks shapes, then submits one op. Compute ops go to
// Lane::compute; communication goes to the lane the caller names. Shapes and meaning of the
// arguments are those of the structs in core/ops.hpp.

#include "core/rank.hpp"

namespace shardmark {

struct MatmulOptions {
  bool transpose_a{false}, transpose_b{false}, accumulate{false}, reuse_b{false};
};
/// c_MN = op(a) op(b) [+ c].
void matmul(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options = {});
/// c_MN = op(a) op(b) + bias_N; an absent bias is allowed.
void matmul_bias(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
                 const MatmulOptions& options = {});
void add(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& y);
void add_bias(Rank& rank, const Tensor& x, const Tensor& bias, const Tensor& y);
void sum_rows(Rank& rank, const Tensor& x, const Tensor& y);
void copy(Rank& rank, const Tensor& x, const Tensor& y);
void fill(Rank& rank, const Tensor& x, float value);

void gelu(Rank& rank, const Tensor& x, const Tensor& y, GeluKind kind);
void gelu_backward(Rank& rank, const Tensor& x, const Tensor& dy, const Tensor& dx, GeluKind kind);
void swiglu(Rank& rank, const Tensor& gate, const Tensor& up, const Tensor& y);
void swiglu_backward(Rank& rank, const SwiGluBackward& op);
void norm(Rank& rank, const Norm& op);
void norm_backward(Rank& rank, const NormBackward& op);

void attention(Rank& rank, const Attention& op);
void attention_backward(Rank& rank, const AttentionBackward& op);
void rope(Rank& rank, const Rope& op);

void embedding(Rank& rank, const Embedding& op);
void embedding_backward(Rank& rank, const EmbeddingBackward& op);
void row_max(Rank& rank, const Tensor& logits, const Tensor& maximum);
void cross_entropy_sum(Rank& rank, const CrossEntropySum& op);
void cross_entropy_loss(Rank& rank, const CrossEntropyLoss& op);
void cross_entropy_backward(Rank& rank, const CrossEntropyBackward& op);

/// In place; contiguous. Moves 2(n-1)/n x S per rank's link.
void all_reduce(Rank& rank, const Tensor& x, const Group& group, Lane lane,
                Reduction reduction = Reduction::sum);
/// y holds group.size times x; both contiguous. Moves (n-1)/n x S(y).
void all_gather(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane);
/// x holds group.size times y; both contiguous. Moves (n-1)/n x S(x).
void reduce_scatter(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane);

}  // namespace shardmark
