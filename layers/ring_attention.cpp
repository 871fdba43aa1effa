// Ring Attention.
//
// Idea: every member keeps its queries; keys and values travel from member to member around the
// ring, and each merges what it sees of every part into its result by online softmax: attention to
// some keys is (o, lse), and two of those merge exactly. So no member ever holds more than two
// parts of K and V, whatever the length of the sequence.
//
// Steps: in step i a member works on the part of member r - i. Behind it, that part goes on to
// member r + 1 and the next one comes from r - 1. Parts travel only as far as somebody needs them
// (a mask can end the way early), and steps without a visible pair compute nothing. Backward: K and
// V travel again; the gradients dk, dv of a part travel with it, one step behind, each member
// adding its share to what arrives. Their way begins at the first member other than the owner that
// needs the part and ends at the owner, which kept its own share. Half of the heads of the own part
// wait for the end, where they hide the last piece of that way (with overlap, for a single sequence
// and several KV heads).
//
// Bytes per member, P members, full attention: forward (P-1)/P x 2 batch seq kv_width e; backward
// the same, plus (P-1)/P x 2 batch seq kv_width 4 for dk, dv in f32.
// Memory per member (T rows): 2 x 2 T kv_width e for K and V, 3 x 2 T kv_width 4 for gradients on
// their way; without f32 results also f32 sums of o or dq and of the own dk, dv.
//
// Wins when a block's compute hides its exchange: long sequences, few KV heads (GQA, MQA), slow
// links; and where Ulysses runs out of heads. With causal masks `contiguous` leaves the first
// members idle; zigzag and striped are balanced.
//
// Sources: Liu et al., Ring Attention, arXiv 2310.01889; Brandon et al., Striped Attention, arXiv
// 2311.09431; zigzag as in github.com/zhuzilin/ring-flash-attention and Llama 3, arXiv 2407.21783.

#include "core/error.hpp"
#include "layers/attention_parts.hpp"

#include <utility>

namespace shardmark {
namespace {

using Use = LaneTurns::Use;

struct RingState final : AttentionCore::State {
  explicit RingState(bool overlap) : turns{overlap} {}

  Buffer lse;
  std::array<Buffer, 2> parts;  ///< K and V of the part of this step, and of the next
  /// dk and dv of a part: on their way out, on their way in, and what this member adds. The roles
  /// change with every step.
  std::array<Buffer, 3> gradients;
  Buffer wide_q;   ///< f32 sums of o, and later of dq, where those are not f32
  Buffer wide_kv;  ///< likewise this member's share of its own dk and dv
  LaneTurns turns;
};

/// The backward pass of KV heads [first, first + count) and the queries that use them. One
/// sequence.
AttentionBackward of_kv_heads(AttentionBackward op, std::int64_t first, std::int64_t count) {
  const std::int64_t dim = op.shape.head_dim, group = op.shape.heads / op.shape.kv_heads;
  for (Tensor* tensor : {&op.k, &op.v, &op.dk, &op.dv})
    *tensor = tensor->column_block(first * dim, count * dim);
  for (Tensor* tensor : {&op.q, &op.o, &op.d_o, &op.dq})
    *tensor = tensor->column_block(first * group * dim, count * group * dim);
  op.lse = op.lse.reshape({op.shape.heads, op.shape.seq})
               .row_block(first * group, count * group)
               .reshape({1, count * group, op.shape.seq});
  op.shape.heads = count * group;
  op.shape.kv_heads = count;
  return op;
}

/// Which of RingState::gradients is what.
struct Roles {
  Tensor out, in, added;
};

class RingAttention final : public AttentionCore {
 public:
  explicit RingAttention(const AttentionConfig& config)
      : config_{config},
        ring_{config_.context.ring_group()},
        parts_{config_},
        rows_{config_.batch * parts_.places(ring_.position).count()},
        q_width_{config_.heads * config_.head_dim},
        kv_width_{config_.kv_heads * config_.head_dim} {}

  std::unique_ptr<State> make_state(Rank& rank) const override;
  void forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const override;
  void backward(Rank& rank, State& state, const Heads& in, const Tensor& o, const Tensor& d_o,
                const Heads& gradients) const override;

 private:
  /// The part that this member works on in a step; after the last step comes its own again.
  [[nodiscard]] int part_at(int step) const {
    return (ring_.position - step + ring_.size) % ring_.size;
  }
  [[nodiscard]] bool computes(int step) const {
    return parts_.needs(ring_.position, part_at(step));
  }
  [[nodiscard]] AttentionShape shape(int step) const {
    return attention_shape(config_, parts_.places(ring_.position), parts_.places(part_at(step)));
  }
  [[nodiscard]] static const Tensor& part(const RingState& state, int step) {
    return state.parts[static_cast<std::size_t>(step % 2)].tensor();
  }

  /// KV heads of the own part that backward leaves for the end.
  [[nodiscard]] std::int64_t num_late() const {
    const bool gradients_return = parts_.nearest(ring_.position) < ring_.size;
    return config_.overlap && gradients_return && config_.batch == 1 ? config_.kv_heads / 2 : 0;
  }

  void pack(Rank& rank, RingState& state, const Heads& in) const;
  void first_share(Rank& rank, const AttentionBackward& op) const;
  void last_share(Rank& rank, AttentionBackward op, const Heads& in) const;
  void exchange(Rank& rank, RingState& state, const Tensor& out, const Tensor& in) const;
  void pass_part(Rank& rank, RingState& state, int step) const;
  bool pass_gradients(Rank& rank, RingState& state, int step, const Roles& roles) const;
  void add_share(Rank& rank, RingState& state, int step, AttentionBackward op, const Roles& roles,
                 bool arrives) const;

  AttentionConfig config_;
  Group ring_;
  AttentionParts parts_;
  std::int64_t rows_, q_width_, kv_width_;
};

std::unique_ptr<AttentionCore::State> RingAttention::make_state(Rank& rank) const {
  auto state = std::make_unique<RingState>(config_.overlap);
  state->lse = rank.allocate({config_.batch, config_.heads, rows_ / config_.batch}, DType::f32,
                             Category::activation);
  const Shape packed{2 * rows_, kv_width_};
  for (Buffer& part : state->parts)
    part = rank.allocate(packed, config_.dtype, Category::communication);
  for (Buffer& gradient : state->gradients)
    gradient = rank.allocate(packed, DType::f32, Category::communication);
  if (config_.dtype == DType::f32) return state;
  state->wide_q = rank.allocate({rows_, q_width_}, DType::f32, Category::workspace);
  state->wide_kv = rank.allocate(packed, DType::f32, Category::workspace);
  return state;
}

/// The own part sets out.
void RingAttention::pack(Rank& rank, RingState& state, const Heads& in) const {
  const Tensor& own = part(state, 0);
  state.turns.before(rank, Lane::compute, own, Use::write);
  copy(rank, in.k, halves(own).k);
  copy(rank, in.v, halves(own).v);
  state.turns.after(rank, Lane::compute, own, Use::write);
}

/// Sends `out` to the next member and receives `in` from the one before; either may be absent.
void RingAttention::exchange(Rank& rank, RingState& state, const Tensor& out,
                             const Tensor& in) const {
  if (!out && !in) return;
  if (out) state.turns.before(rank, Lane::cp, out, Use::read);
  if (in) state.turns.before(rank, Lane::cp, in, Use::write);
  const int next = (ring_.position + 1) % ring_.size;
  const int previous = (ring_.position + ring_.size - 1) % ring_.size;
  send_recv(rank, out, out ? next : -1, in, in ? previous : -1, ring_, Lane::cp);
  if (out) state.turns.after(rank, Lane::cp, out, Use::read);
  if (in) state.turns.after(rank, Lane::cp, in, Use::write);
}

/// The part of this step goes on, and that of the next comes.
void RingAttention::pass_part(Rank& rank, RingState& state, int step) const {
  const auto travels_on = [&](int part) { return parts_.farthest(part) > step; };
  exchange(rank, state, travels_on(part_at(step)) ? part(state, step) : Tensor{},
           travels_on(part_at(step + 1)) ? part(state, step + 1) : Tensor{});
}

/// The gradients of the last step's part go on, and those of this step's part come: true if there
/// are any yet.
bool RingAttention::pass_gradients(Rank& rank, RingState& state, int step,
                                   const Roles& roles) const {
  const bool leaves = step > 0 && parts_.nearest(part_at(step - 1)) < step;
  const bool arrives = parts_.nearest(part_at(step)) < step;
  exchange(rank, state, leaves ? roles.out : Tensor{}, arrives ? roles.in : Tensor{});
  return arrives;
}

void RingAttention::forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const {
  const auto scope = rank.scope("ring_forward");
  auto& s = static_cast<RingState&>(state);
  const Tensor sum = sum_of(o, s.wide_q);
  pack(rank, s, in);
  for (int step = 0; step < ring_.size; ++step) {
    const auto step_scope = rank.scope(message("step", step));
    const Tensor& packed = part(s, step);
    // Before the exchange that hides behind this step is given to the lane to wait for.
    if (computes(step)) s.turns.before(rank, Lane::compute, packed, Use::read);
    pass_part(rank, s, step);
    if (!computes(step)) continue;
    const auto [k, v] = halves(packed);
    attention(rank, {in.q, k, v, sum, s.lse.tensor(), shape(step), step > 0});
    s.turns.after(rank, Lane::compute, packed, Use::read);
  }
  store_sum(rank, sum, o);
}

/// Computes this member's share of the gradients of the step's part and adds what arrives.
void RingAttention::add_share(Rank& rank, RingState& state, int step, AttentionBackward op,
                              const Roles& roles, bool arrives) const {
  fill(rank, roles.added, 0);
  const auto [k, v] = halves(part(state, step));
  const auto [dk, dv] = halves(roles.added);
  op.k = k;
  op.v = v;
  op.dk = dk;
  op.dv = dv;
  op.accumulate = true;
  attention_backward(rank, op);
  if (arrives) {
    state.turns.before(rank, Lane::compute, roles.in, Use::read);
    combine(rank, roles.in, roles.added, Reduction::sum);
    state.turns.after(rank, Lane::compute, roles.in, Use::read);
  }
  state.turns.after(rank, Lane::compute, roles.added, Use::write);
}

/// The gradients of the own part; late heads begin with zero.
void RingAttention::first_share(Rank& rank, const AttentionBackward& op) const {
  if (num_late() == 0) return attention_backward(rank, op);
  const std::int64_t early = config_.kv_heads - num_late();
  attention_backward(rank, of_kv_heads(op, 0, early));
  const AttentionBackward late = of_kv_heads(op, early, num_late());
  for (const Tensor& sum : {late.dq, late.dk, late.dv}) fill(rank, sum, 0);
}

/// Those of the late heads.
void RingAttention::last_share(Rank& rank, AttentionBackward op, const Heads& in) const {
  if (num_late() == 0) return;
  op.k = in.k;  // the packed part has gone
  op.v = in.v;
  op.shape = shape(0);
  op.accumulate = true;
  attention_backward(rank, of_kv_heads(op, config_.kv_heads - num_late(), num_late()));
}

void RingAttention::backward(Rank& rank, State& state, const Heads& in, const Tensor& o,
                             const Tensor& d_o, const Heads& gradients) const {
  const auto scope = rank.scope("ring_backward");
  auto& s = static_cast<RingState&>(state);
  const auto [k, v] = halves(part(s, 0));
  const bool wide = config_.dtype != DType::f32;
  const KeysValues own = wide ? halves(s.wide_kv.tensor()) : KeysValues{gradients.k, gradients.v};
  AttentionBackward op{in.q,  k,     v,       o, s.lse.tensor(), d_o, sum_of(gradients.q, s.wide_q),
                       own.k, own.v, shape(0)};
  Roles roles{s.gradients[0].tensor(), s.gradients[1].tensor(), s.gradients[2].tensor()};
  pack(rank, s, in);
  for (int step = 0; step < ring_.size; ++step) {
    const auto step_scope = rank.scope(message("step", step));
    const Tensor& packed = part(s, step);
    if (computes(step)) {
      s.turns.before(rank, Lane::compute, packed, Use::read);
      if (step > 0) s.turns.before(rank, Lane::compute, roles.added, Use::write);
    }
    pass_part(rank, s, step);
    const bool arrives = pass_gradients(rank, s, step, roles);
    if (computes(step)) {
      op.shape = shape(step);
      if (step == 0)
        first_share(rank, op);
      else
        add_share(rank, s, step, op, roles, arrives);
      s.turns.after(rank, Lane::compute, packed, Use::read);
    }
    if (step == 0) continue;
    if (computes(step))
      roles = {roles.added, roles.out, roles.in};
    else if (arrives)
      std::swap(roles.out, roles.in);
  }
  const auto last_scope = rank.scope(message("step", ring_.size));
  const bool arrives = pass_gradients(rank, s, ring_.size, roles);
  last_share(rank, op, in);
  store_sum(rank, op.dq, gradients.q);
  if (arrives) {
    s.turns.before(rank, Lane::compute, roles.in, Use::read);
    combine(rank, halves(roles.in).k, own.k, Reduction::sum);
    combine(rank, halves(roles.in).v, own.v, Reduction::sum);
    s.turns.after(rank, Lane::compute, roles.in, Use::read);
  }
  store_sum(rank, own.k, gradients.k);
  store_sum(rank, own.v, gradients.v);
}

}  // namespace

std::unique_ptr<AttentionCore> make_ring_attention(const AttentionConfig& config) {
  return std::make_unique<RingAttention>(config);
}

}  // namespace shardmark
