// All-gather context parallelism.
//
// Idea: every member gathers the keys and values of all others at once and attends to all of them
// with its own queries. Simple, works with any mask and any number of heads, and the exchange is
// one collective that libraries do well.
//
// Steps: forward: all-gather of the packed K and V; attention to the own part, which needs no
// exchange, hides it; then attention to every other part that is visible, merged by online softmax.
// Backward: K and V are still there (kept, not gathered again); dk and dv of all parts are computed
// in f32, and a reduce-scatter sums each at its owner. With head_chunks and overlap all of this
// happens for one share of the heads after the other, and the exchange of one hides behind the
// compute of its neighbour.
//
// Bytes per member, P members, whatever the mask: forward (P-1)/P x 2 batch seq kv_width e;
// backward (P-1)/P x 2 batch seq kv_width 4.
// Memory per member: K and V of the whole sequence (2 batch seq kv_width e, kept from forward to
// backward) and their gradients (2 batch seq kv_width 4): not O(seq / P). Without f32 results also
// an f32 sum of o or dq.
//
// Wins with few KV heads, where K and V are small beside Q and O, at moderate lengths, and with
// masks that leave a ring uneven.
//
// Sources: context parallelism in the training of Llama 3, arXiv 2407.21783 section 3.3.2;
// blockwise online softmax: Milakov and Gimelshein, arXiv 1805.02867.

#include "core/error.hpp"
#include "layers/attention_parts.hpp"

namespace shardmark {
namespace {

struct GatherState final : AttentionCore::State {
  Buffer lse;        ///< of one chunk of the heads after the other
  Buffer parts;      ///< K and V: chunks of the heads, in each the parts
  Buffer gradients;  ///< dk and dv, likewise
  Buffer wide_q;     ///< f32 sums of o, and later of dq, where those are not f32
};

class GatherAttention final : public AttentionCore {
 public:
  explicit GatherAttention(const AttentionConfig& config)
      : config_{config},
        group_{config_.context.ring_group()},
        parts_{config_},
        rows_{config_.batch * parts_.places(group_.position).count()},
        chunks_{config_.overlap
                    ? config_.context.usable_head_chunks(config_.heads, config_.kv_heads)
                    : 1},
        chunk_{config_} {
    chunk_.heads /= chunks_;
    chunk_.kv_heads /= chunks_;
    for (int step = 1; step < group_.size; ++step)
      needs_others_ = needs_others_ || parts_.needs(group_.position, part_at(step));
  }

  std::unique_ptr<State> make_state(Rank& rank) const override;
  void forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const override;
  void backward(Rank& rank, State& state, const Heads& in, const Tensor& o, const Tensor& d_o,
                const Heads& gradients) const override;

 private:
  [[nodiscard]] bool is_own(int part) const { return part == group_.position; }
  /// The parts in the order of their use, the own first.
  [[nodiscard]] int part_at(int step) const { return (group_.position + step) % group_.size; }
  [[nodiscard]] AttentionShape shape(int part) const {
    return attention_shape(chunk_, parts_.places(group_.position), parts_.places(part));
  }
  [[nodiscard]] Tensor queries(const Tensor& q, std::int64_t chunk) const {
    const std::int64_t width = chunk_.heads * chunk_.head_dim;
    return q.column_block(chunk * width, width);
  }
  [[nodiscard]] Tensor keys(const Tensor& k, std::int64_t chunk) const {
    const std::int64_t width = chunk_.kv_heads * chunk_.head_dim;
    return k.column_block(chunk * width, width);
  }
  [[nodiscard]] Tensor lse(const GatherState& state, std::int64_t chunk) const {
    return state.lse.tensor().row_block(chunk * config_.batch, config_.batch);
  }
  /// All parts of one chunk, and one of them.
  [[nodiscard]] Tensor all_parts(const Buffer& buffer, std::int64_t chunk) const {
    const std::int64_t rows = 2 * rows_ * group_.size;
    return buffer.tensor().row_block(chunk * rows, rows);
  }
  [[nodiscard]] Tensor one_part(const Buffer& buffer, std::int64_t chunk, int part) const {
    return all_parts(buffer, chunk).row_block(2 * rows_ * part, 2 * rows_);
  }
  void pack(Rank& rank, const GatherState& state, const Heads& in) const;
  void gather(Rank& rank, const GatherState& state, std::int64_t chunk) const;

  AttentionConfig config_;
  Group group_;
  AttentionParts parts_;
  std::int64_t rows_;
  std::int64_t chunks_;    ///< of the heads
  AttentionConfig chunk_;  ///< the config of one of them
  bool needs_others_{false};
};

std::unique_ptr<AttentionCore::State> GatherAttention::make_state(Rank& rank) const {
  auto state = std::make_unique<GatherState>();
  state->lse = rank.allocate({chunks_ * config_.batch, chunk_.heads, rows_ / config_.batch},
                             DType::f32, Category::activation);
  const Shape packed{chunks_ * group_.size * 2 * rows_, chunk_.kv_heads * chunk_.head_dim};
  state->parts = rank.allocate(packed, config_.dtype, Category::activation);
  state->gradients = rank.allocate(packed, DType::f32, Category::communication);
  if (config_.dtype != DType::f32)
    state->wide_q =
        rank.allocate({rows_, config_.heads * config_.head_dim}, DType::f32, Category::workspace);
  return state;
}

/// Puts the own keys and values where the others gather them.
void GatherAttention::pack(Rank& rank, const GatherState& state, const Heads& in) const {
  rank.order(Lane::cp, Lane::compute);  // an earlier gather may still read there
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const KeysValues own = halves(one_part(state.parts, chunk, group_.position));
    copy(rank, keys(in.k, chunk), own.k);
    copy(rank, keys(in.v, chunk), own.v);
  }
  rank.order(Lane::compute, Lane::cp);
}

void GatherAttention::gather(Rank& rank, const GatherState& state, std::int64_t chunk) const {
  all_gather(rank, one_part(state.parts, chunk, group_.position), all_parts(state.parts, chunk),
             group_, Lane::cp);
  if (!config_.overlap) rank.order(Lane::cp, Lane::compute);
}

void GatherAttention::forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const {
  const auto scope = rank.scope("all_gather_forward");
  auto& s = static_cast<GatherState&>(state);
  const Tensor sum = sum_of(o, s.wide_q);
  pack(rank, s, in);
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const auto step_scope = rank.scope(message("step", chunk));
    if (chunk == 0) gather(rank, s, 0);
    Attention op{.q = queries(in.q, chunk),
                 .k = keys(in.k, chunk),
                 .v = keys(in.v, chunk),
                 .o = queries(sum, chunk),
                 .lse = lse(s, chunk),
                 .shape = shape(group_.position)};
    attention(rank, op);
    op.accumulate = true;
    if (needs_others_) rank.order(Lane::cp, Lane::compute);
    if (chunk + 1 < chunks_) gather(rank, s, chunk + 1);
    for (int step = 1; step < group_.size; ++step) {
      const int part = part_at(step);
      if (!parts_.needs(group_.position, part)) continue;
      const auto [k, v] = halves(one_part(s.parts, chunk, part));
      op.k = k;
      op.v = v;
      op.shape = shape(part);
      attention(rank, op);
    }
  }
  store_sum(rank, sum, o);
}

void GatherAttention::backward(Rank& rank, State& state, const Heads& in, const Tensor& o,
                               const Tensor& d_o, const Heads& gradients) const {
  const auto scope = rank.scope("all_gather_backward");
  auto& s = static_cast<GatherState&>(state);
  const Tensor sum = sum_of(gradients.q, s.wide_q);
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const auto step_scope = rank.scope(message("step", chunk));
    fill(rank, all_parts(s.gradients, chunk), 0);
    for (int step = 0; step < group_.size; ++step) {
      const int part = part_at(step);
      if (!parts_.needs(group_.position, part)) continue;
      const KeysValues kv = is_own(part) ? KeysValues{keys(in.k, chunk), keys(in.v, chunk)}
                                         : halves(one_part(s.parts, chunk, part));
      const auto [dk, dv] = halves(one_part(s.gradients, chunk, part));
      attention_backward(
          rank, {queries(in.q, chunk), kv.k, kv.v, queries(o, chunk), lse(s, chunk),
                 queries(d_o, chunk), queries(sum, chunk), dk, dv, shape(part), !is_own(part)});
    }
    rank.order(Lane::compute, Lane::cp);
    reduce_scatter(rank, all_parts(s.gradients, chunk),
                   one_part(s.gradients, chunk, group_.position), group_, Lane::cp);
    if (!config_.overlap) rank.order(Lane::cp, Lane::compute);
  }
  store_sum(rank, sum, gradients.q);
  rank.order(Lane::cp, Lane::compute);
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const auto [dk, dv] = halves(one_part(s.gradients, chunk, group_.position));
    copy(rank, dk, keys(gradients.k, chunk));
    copy(rank, dv, keys(gradients.v, chunk));
  }
}

}  // namespace

std::unique_ptr<AttentionCore> make_gather_attention(const AttentionConfig& config) {
  return std::make_unique<GatherAttention>(config);
}

}  // namespace shardmark
