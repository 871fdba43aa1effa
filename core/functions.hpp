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
void sum_rows(Rank& rank, const Tensor& x, const Tensor& y, bool accumulate = false);
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

/// y = y (reduction) x.
void combine(Rank& rank, const Tensor& x, const Tensor& y, Reduction reduction);
void divide(Rank& rank, const Tensor& x, int divisor);

// Collectives; all tensors are contiguous, x and y have one dtype.

/// In place. Moves 2(n-1)/n x S per rank's link.
void all_reduce(Rank& rank, const Tensor& x, const Group& group, Lane lane,
                Reduction reduction = Reduction::sum);
/// y = the reduction of all x; y has the size of x.
void all_reduce(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane,
                Reduction reduction = Reduction::sum);
/// y holds group.size times x. Moves (n-1)/n x S(y).
void all_gather(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane);
/// x holds group.size times y. Moves (n-1)/n x S(x).
void reduce_scatter(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane,
                    Reduction reduction = Reduction::sum);
/// x and y have group.size equal blocks and do not overlap. Moves (n-1)/n x S.
void all_to_all(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane);
/// Member i has counts[i * group.size + j] elements for member j; `counts` stays until the op ran.
void all_to_all_v(Rank& rank, const Tensor& x, const Tensor& y, const Group& group,
                  std::span<const std::int64_t> counts, Lane lane);
/// x is looked at on the root only. Moves S.
void broadcast(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
               Lane lane);
/// y is looked at on the root only. Moves S.
void reduce_to_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                    Lane lane, Reduction reduction = Reduction::sum);
/// The root's y holds group.size times x.
void gather_to_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                    Lane lane);
/// The root's x holds group.size times y.
void scatter_from_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                       Lane lane);
/// Sends x to member `to` and receives y from member `from`; -1 and no tensor for neither. A rank
/// that sends to itself receives from itself in the same call.
void send_recv(Rank& rank, const Tensor& x, int to, const Tensor& y, int from, const Group& group,
               Lane lane);
void barrier(Rank& rank, const Group& group, Lane lane);

}  // namespace shardmark
