#pragma once

// Every operation a layer can ask for, as plain values in one closed variant. Adding an op means:
// a struct here and its place among the ops of its kind, its lines in ops.cpp (name, work,
// touches), a kernel in each backend (communication: each transport), a row in the conformance
// suite. Visits list the ops, or the kinds where all ops of one are treated alike; there is no
// catch-all, so whatever is forgotten does not compile.
//
// Letters: T tokens (rows), D/K/N columns, V vocabulary (local part), H query heads.

#include "core/mesh.hpp"
#include "core/places.hpp"
#include "core/tensor.hpp"
#include "core/types.hpp"

#include <array>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace shardmark {

// ------------------------------------------------------------------------------ dense algebra

/// c_MN = op(a) op(b) [+ bias_N] [+ c]. op(a) is M x K, op(b) is K x N after the transposes.
/// Operands are f32 or bf16 (equal), accumulated in f32; c is f32 or the operands' dtype; the bias
/// has the operands' dtype. `reuse_b` promises that b is the b of the preceding Matmul on this
/// backend and unchanged since, so a packed copy may be used again (token chunks of one linear).
struct Matmul {
  Tensor a, b, c, bias{};
  bool transpose_a{false}, transpose_b{false}, accumulate{false}, reuse_b{false};
};

/// y = a + b elementwise; y may be a or b.
struct Add {
  Tensor a, b, y;
};
/// y_TN = x_TN + bias_N on every row; y may be x.
struct AddBias {
  Tensor x, bias, y;
};
/// y_N (f32) = sum over the rows of x_TN [+ y]: the gradient of a bias.
struct SumRows {
  Tensor x, y;
  bool accumulate{false};
};
/// y = x, of any dtype where both have the same, else converted between f32 and bf16; either side
/// may be a column block.
struct Copy {
  Tensor x, y;
};
/// Every element of x becomes `value`.
struct Fill {
  Tensor x;
  float value{0.0F};
};
/// How contributions are combined. `avg` is the sum divided by the number of members, rounded
/// towards zero for integers.
enum class Reduction : std::uint8_t { sum, prod, max, min, avg };
[[nodiscard]] std::string_view name_of(Reduction reduction);

/// y = y (reduction) x elementwise, for any dtype; `avg` adds like `sum`. A step of a reduction
/// whose members come one by one.
struct Combine {
  Tensor x, y;
  Reduction reduction{Reduction::sum};
};
/// x = x / divisor, rounded towards zero for integers: the end of an `avg`.
struct Divide {
  Tensor x;
  int divisor{1};
};

// ---------------------------------------------------------------------------- elementwise, norm

/// `erf` is the definition, x/2 (1 + erf(x/sqrt 2)); `tanh` is GPT-2's approximation.
enum class GeluKind : std::uint8_t { erf, tanh };
struct Gelu {
  Tensor x, y;
  GeluKind kind{GeluKind::erf};
};
/// dx = dy * gelu'(x); dx may be dy.
struct GeluBackward {
  Tensor x, dy, dx;
  GeluKind kind{GeluKind::erf};
};
/// y_TF = silu(gate_TF) * up_TF, silu(z) = z / (1 + exp(-z)). Gate and up may be column blocks.
struct SwiGlu {
  Tensor gate, up, y;
};
struct SwiGluBackward {
  Tensor gate, up, dy, dgate, dup;
};

/// Layer norm: y = (x - mean) / sqrt(var + epsilon) * gain + bias. RMS norm: no mean, no bias.
enum class NormKind : std::uint8_t { layer, rms };
/// Statistics of each row go to stats_T2 (f32): mean (0 for RMS) and reciprocal deviation.
struct Norm {
  Tensor x, gain, bias, y, stats;
  NormKind kind{NormKind::layer};
  float epsilon{1e-5F};
};
/// dgain_D and dbias_D (f32, dbias absent for RMS) are overwritten with the sum over rows, or with
/// `accumulate` added to.
struct NormBackward {
  Tensor x, gain, stats, dy, dx, dgain, dbias;
  NormKind kind{NormKind::layer};
  bool accumulate{false};
};

// ------------------------------------------------------------------------------------ attention

/// Sizes of an attention core on one rank, and who sees whom. There are batch * seq query rows and
/// batch * num_keys() rows of keys and values, batch outermost.
struct AttentionShape {
  std::int64_t batch{1}, seq{1}, heads{1}, kv_heads{1}, head_dim{1};
  bool causal{true};
  std::int64_t window{0};  ///< see Visibility
  /// Of the rows of one sequence; without any the rows are the tokens 0, 1, ..., seq - 1.
  Places queries{}, keys{};
  /// See Visibility; stays where it is until the op is done.
  std::span<const std::int64_t> starts{};

  [[nodiscard]] std::int64_t num_keys() const { return keys.count() > 0 ? keys.count() : seq; }
  [[nodiscard]] Places query_places() const {
    return queries.count() > 0 ? queries : Places::all(seq);
  }
  [[nodiscard]] Places key_places() const { return keys.count() > 0 ? keys : Places::all(seq); }
  [[nodiscard]] Visibility visibility() const { return {causal, window, starts}; }
};
/// o = softmax(q k^T / sqrt(head_dim)) v per head over the keys that a query sees, with blocked
/// online softmax: memory is O(seq), and blocks that nobody sees cost nothing. q and o have heads *
/// head_dim columns, k and v kv_heads * head_dim; query head i uses KV head i / (heads / kv_heads).
/// lse (f32, batch x heads x seq) is the log-sum-exp of each row. A query that sees no key gets
/// o = 0 and lse = -inf.
///
/// With `accumulate`, o (then f32) and lse hold the same queries' attention to other keys, and end
/// as that to both: the step of a ring. Sums run in f32.
struct Attention {
  Tensor q, k, v, o, lse;
  AttentionShape shape;
  bool accumulate{false};
};
/// Recomputes the probabilities from lse block by block. o and lse are those over all keys that the
/// queries see, also if k and v are only some of them. dq, dk, dv are overwritten; with
/// `accumulate` they (then f32) are added to.
struct AttentionBackward {
  Tensor q, k, v, o, lse, d_o, dq, dk, dv;
  AttentionShape shape;
  bool accumulate{false};
};
/// Rotary positions in place on x_T(num_heads*head_dim), half-split pairing (i, i + head_dim/2) as
/// in GPT-NeoX and Llama checkpoints. Row t stands at place t % seq of its sequence, or at places[t
/// % seq] where those are given; with `starts` (see Visibility) it counts from its own start.
/// `inverse` rotates back: the backward pass.
struct Rope {
  Tensor x;
  std::int64_t seq{1}, num_heads{1}, head_dim{2};
  float theta{10000.0F};
  bool inverse{false};
  Places places{};
  std::span<const std::int64_t> starts{};
};

// --------------------------------------------------------------------- vocabulary-parallel parts

/// y_TD [+]= table_VD[ids_T - first_row]; rows whose id is not in this shard are zero (or, with
/// `accumulate`, left alone).
struct Embedding {
  Tensor ids, table, y;
  std::int64_t first_row{0};
  bool accumulate{false};
};
/// dtable_VD (f32) is overwritten, or with `accumulate` added to: row v = sum of dy_T over the
/// tokens with that id.
struct EmbeddingBackward {
  Tensor ids, dy, dtable;
  std::int64_t first_row{0};
  bool accumulate{false};
};
/// maximum_T (f32) = maximum over the columns of logits_TV.
struct RowMax {
  Tensor logits, maximum;
};
/// partials_2T (f32): row 0 the sum of exp(logits - maximum), row 1 the target's logit or 0 when
/// the target is not in this shard. Summed over the tp group they give the loss.
struct CrossEntropySum {
  Tensor logits, targets, maximum, partials;
  std::int64_t first_column{0};
};
/// loss_T (f32) = log(partials[0]) + maximum - partials[1].
struct CrossEntropyLoss {
  Tensor maximum, partials, loss;
};
/// dlogits_TV = (softmax - one_hot(target)) * scale; dlogits may be logits.
struct CrossEntropyBackward {
  Tensor logits, targets, maximum, partials, dlogits;
  std::int64_t first_column{0};
  float scale{1.0F};
};

// ------------------------------------------------------------------- communication and ordering

/// y (x itself where y is absent) = the reduction of all members' x; every member ends with the
/// same bits.
struct AllReduce {
  Tensor x;
  Group group;
  Reduction reduction{Reduction::sum};
  Tensor y{};
};
/// y (group.size times x, contiguous) = the members' x one after another. In place: x is the
/// member's own block of y.
struct AllGather {
  Tensor x, y;
  Group group;
};
/// y = this member's block of the reduction of all members' x (x is group.size times y,
/// contiguous). In place: y is the member's own block of x, whose other blocks are then undefined.
struct ReduceScatter {
  Tensor x, y;
  Group group;
  Reduction reduction{Reduction::sum};
};
/// Block i of y = block `group.position` of member i's x; x and y have group.size equal blocks and
/// do not overlap.
struct AllToAll {
  Tensor x, y;
  Group group;
};
/// The same with blocks of any length, also none: member i has counts[i * group.size + j] elements
/// for member j. x holds a member's blocks for members 0, 1, ... without gaps, y those from them.
/// `counts` is equal on all members and stays where it is until the op is done.
struct AllToAllV {
  Tensor x, y;
  Group group;
  std::span<const std::int64_t> counts;
};
/// y = the root's x on every member; x is looked at on the root only. In place: y is x.
struct Broadcast {
  Tensor x, y;
  Group group;
  int root{0};  ///< a member
};
/// The root's y = the reduction of all members' x; y is looked at on the root only. In place: y is
/// x.
struct Reduce {
  Tensor x, y;
  Group group;
  int root{0};
  Reduction reduction{Reduction::sum};
};
/// The root's y (group.size times x) = the members' x one after another. In place: the root's x is
/// its own block of y.
struct Gather {
  Tensor x, y;
  Group group;
  int root{0};
};
/// y = this member's block of the root's x (group.size times y). In place: the root's y is its own
/// block of x.
struct Scatter {
  Tensor x, y;
  Group group;
  int root{0};
};
/// Sends x to one member and receives y from one, both at once; -1 for neither. Messages between
/// two members on one channel (core/record/channel.hpp) arrive in the order in which they were
/// sent. May wait for the peer to come (rendezvous): a cycle of members that first send and then
/// receive is a deadlock.
struct SendRecv {
  Tensor x, y;
  Group group;
  int to{-1}, from{-1};
};
/// Complete once all members have come.
struct Barrier {
  Group group;
};

/// An event: complete when a lane has finished everything submitted to it before.
struct Fence {
  std::uint32_t id{0};
};
/// Completes `fence` when the lane reaches this op.
struct Signal {
  Fence fence;
};
/// Holds the lane until `fence` is complete.
struct Await {
  Fence fence;
};

using ComputeOp = std::variant<Matmul, Add, AddBias, SumRows, Copy, Fill, Combine, Divide, Gelu,
                               GeluBackward, SwiGlu, SwiGluBackward, Norm, NormBackward, Attention,
                               AttentionBackward, Rope, Embedding, EmbeddingBackward, RowMax,
                               CrossEntropySum, CrossEntropyLoss, CrossEntropyBackward>;
using CommunicationOp = std::variant<AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllV,
                                     Broadcast, Reduce, Gather, Scatter, SendRecv, Barrier>;
using OrderingOp = std::variant<Signal, Await>;

template <class... A, class... B, class... C>
std::variant<A..., B..., C...> joined(const std::variant<A...>&, const std::variant<B...>&,
                                      const std::variant<C...>&);
using Op = decltype(joined(ComputeOp{}, CommunicationOp{}, OrderingOp{}));

/// One of a variant's alternatives.
template <class O, class Variant>
inline constexpr bool is_alternative = false;
template <class O, class... Os>
inline constexpr bool is_alternative<O, std::variant<Os...>> = (std::is_same_v<O, Os> || ...);
template <class O, class Variant>
concept AlternativeOf = is_alternative<O, Variant>;

template <class O>
concept Communication = AlternativeOf<O, CommunicationOp>;
/// Not communication.
template <class O>
concept Local = AlternativeOf<O, ComputeOp> || AlternativeOf<O, OrderingOp>;

/// Builds a visitor from lambdas, one per op.
template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

/// compute: kernels; communication: crosses ranks; ordering: Signal and Await.
enum class OpKind : std::uint8_t { compute, communication, ordering };
[[nodiscard]] OpKind kind_of(const Op& op);
/// "matmul", "all_reduce", ...
[[nodiscard]] std::string_view name_of(const Op& op);

/// The one accounting of work. `flops` counts what the op executes (a causal attention counts only
/// unmasked pairs; its backward 2.5 times the forward because probabilities are recomputed; softmax
/// and other elementwise work count 0, as in METRICS convention for model FLOPs). `bytes_memory` is
/// each operand once. `bytes_wire` is what crosses this rank's link: what it sends, or receives
/// if that is more. For ops without a fixed algorithm it is the ring's: all-reduce 2(n-1)/n x S,
/// all-gather, reduce-scatter and all-to-all (n-1)/n x the total, broadcast and reduce S.
struct Work {
  double flops{0}, bytes_memory{0}, bytes_wire{0};
};
[[nodiscard]] Work work(const Op& op);
/// Single fields of `work`, cheap enough for the hot path.
[[nodiscard]] double flops_of(const Op& op);
[[nodiscard]] double bytes_wire_of(const Op& op);
/// The same, but of a message only what this rank sends: summed over an iteration it is the rank's
/// share of the traffic, also where it receives and passes nothing on.
[[nodiscard]] double bytes_sent_of(const Op& op);

/// The one statement of access: what the op reads and what it writes, on this rank.
struct Touches {
  std::vector<Tensor> reads, writes;
};
[[nodiscard]] Touches touches(const Op& op);

/// The group of a communication op, null for the others.
[[nodiscard]] const Group* group_of(const Op& op);

}  // namespace shardmark
