// Ulysses attention, alone and as the inner half of a hybrid.
//
// Idea: attention needs all tokens but only one head at a time. So an all-to-all turns "all heads
// of some tokens" into "some heads of all tokens", each member runs the plain attention of its
// heads, and a second all-to-all turns the result back. In a hybrid the groups are smaller than cp:
// the inner attention is then a ring between groups, over the tokens that a group has together.
//
// Steps, u members: pack the columns q | k | v of each member's heads into one block per member,
// all-to-all, inner attention, all-to-all of o, unpack. Backward: all-to-all of o's gradient, inner
// backward, all-to-all of dq | dk | dv. Sequences of a batch travel in calls of their own: then
// what arrives already lies as attention reads it, batch outermost, and nothing is copied.
//   KV heads fewer than members: a KV head goes to each member that has query heads of its group,
//     never to another, so the groups of query heads stay as they are (padding q and kv apart would
//     pair them wrongly). Its gradients are added on return.
//   Overlap: the heads come in `head_chunks` chunks; chunk c + 1 arrives and the result of c - 1
//     leaves while c is computed. Chunks that share a KV head send it once, with the first; its
//     gradient is added up over them and returns with that one, so backward runs last to first.
//     In a hybrid none share one: the ring of each would send it again.
//
// Bytes per member, T tokens here, q and kv columns, kv at least u heads: forward
// (u-1)/u x T (2q + 2kv) e, backward the same. Falls with u, where a ring's do not.
// Memory per member: q, k, v and o stay in the layout of the inner attention for the backward pass
// (T (2q + 2kv) e, beside the caller's own), scratch T (3q + 4kv) e.
//
// Wins with as many KV heads as members, fast links or short sequences: fewer bytes and messages
// than a ring, any mask in balance. Ends at u = heads; all but the chunks' share is exposed.
//
// Sources: Jacobs et al., DeepSpeed-Ulysses, arXiv 2309.14509; hybrids: Fang and Zhao, USP, arXiv
// 2405.07719.

#include "core/error.hpp"
#include "layers/attention_core.hpp"

#include <algorithm>

namespace shardmark {
namespace {

/// One buffer per chunk of heads: the group's tokens, this member's heads.
using ChunkBuffers = std::vector<Buffer>;

struct UlyssesState final : AttentionCore::State {
  std::vector<std::unique_ptr<AttentionCore::State>> inner;  ///< per chunk
  ChunkBuffers received, o;     ///< q | k | v and their result; backward needs them again
  ChunkBuffers sent, returned;  ///< q | k | v on their way out; gradients on their way back
  ChunkBuffers local_o;         ///< a result, or its gradient, at the tokens' owner
  Buffer shared_kv;             ///< a chunk's gradient of a KV head that others share
};

class UlyssesAttention final : public AttentionCore {
 public:
  explicit UlyssesAttention(const AttentionConfig& config);

  std::unique_ptr<State> make_state(Rank& rank) const override;
  void forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const override;
  void backward(Rank& rank, State& state, const Heads& in, const Tensor& o, const Tensor& d_o,
                const Heads& gradients) const override;

 private:
  [[nodiscard]] AttentionConfig inner_config() const;
  /// Chunks that hold the same KV head: `chunk` and its neighbours.
  [[nodiscard]] int chunks_per_kv() const {
    return std::max(1, chunks_ / static_cast<int>(member_kv_heads_));
  }
  /// The chunk that k and v of `chunk` travel with.
  [[nodiscard]] int kv_chunk(int chunk) const { return chunk / chunks_per_kv() * chunks_per_kv(); }
  [[nodiscard]] std::int64_t q_columns() const { return heads_ / chunks_ * config_.head_dim; }
  [[nodiscard]] std::int64_t kv_columns() const {
    return std::max<std::int64_t>(1, member_kv_heads_ / chunks_) * config_.head_dim;
  }
  [[nodiscard]] std::int64_t columns(int chunk) const {
    return q_columns() + (chunk == kv_chunk(chunk) ? 2 * kv_columns() : 0);
  }
  /// Where a member's chunk begins among the caller's columns of q and of k.
  [[nodiscard]] std::int64_t first_q(int member, int chunk) const {
    return (member * heads_ + chunk * (heads_ / chunks_)) * config_.head_dim;
  }
  [[nodiscard]] std::int64_t first_kv(int member, int chunk) const {
    const std::int64_t per_kv = config_.heads / config_.kv_heads;
    return first_q(member, chunk) / config_.head_dim / per_kv * config_.head_dim;
  }
  /// Members that hold the same KV head.
  [[nodiscard]] int members_per_kv() const {
    return std::max(1, group_.size / static_cast<int>(config_.kv_heads));
  }

  /// Rows of one sequence: at the tokens' owner, and those of one member in a buffer of all.
  [[nodiscard]] Tensor sequence(const Tensor& local, std::int64_t entry) const {
    return local.row_block(entry * rows_, rows_);
  }
  [[nodiscard]] Tensor block(const Tensor& all, std::int64_t entry, int member) const {
    return all.row_block((entry * group_.size + member) * rows_, rows_);
  }
  /// q, k and v of a chunk in buffers of them all.
  [[nodiscard]] Heads heads_of(const ChunkBuffers& buffers, int chunk) const;
  /// The part of a chunk's `returned` buffer that holds o's gradient before the others come.
  [[nodiscard]] Tensor gradient_of_o(const UlyssesState& state, int chunk) const;

  void exchange(Rank& rank, const Tensor& from, const Tensor& to) const;
  [[nodiscard]] Fence signal_result(Rank& rank, int turn) const;
  Fence send_heads(Rank& rank, UlyssesState& state, const Heads& in, int chunk) const;
  Fence send_gradient_of_o(Rank& rank, UlyssesState& state, const Tensor& d_o, int chunk) const;
  void inner_backward(Rank& rank, UlyssesState& state, int chunk) const;
  void take_gradients(Rank& rank, UlyssesState& state, const Heads& gradients, int chunk) const;

  AttentionConfig config_;
  Group group_;
  std::int64_t rows_;                     ///< of one sequence on this rank
  std::int64_t heads_, member_kv_heads_;  ///< of one member; KV heads at least one
  int chunks_;
  std::unique_ptr<AttentionCore> inner_;
};

const Tensor& buffer_of(const ChunkBuffers& buffers, int chunk) {
  return buffers[static_cast<std::size_t>(chunk)].tensor();
}

void await_result(Rank& rank, Fence fence) {
  if (fence.id != 0) rank.await(fence, Lane::compute);
}

UlyssesAttention::UlyssesAttention(const AttentionConfig& config)
    : config_{config},
      group_{config_.context.ulysses_group()},
      rows_{config_.seq / config_.context.cp.size},
      heads_{config_.heads / group_.size},
      member_kv_heads_{std::max<std::int64_t>(1, config_.kv_heads / group_.size)},
      chunks_{config_.overlap ? config_.context.usable_head_chunks(config_.heads, config_.kv_heads)
                              : 1},
      inner_{make_attention_core(inner_config())} {}

AttentionConfig UlyssesAttention::inner_config() const {
  AttentionConfig inner = config_;
  inner.heads = heads_ / chunks_;
  inner.kv_heads = kv_columns() / config_.head_dim;
  inner.context = {.cp = config_.context.ring_group(), .order = config_.context.order};
  return inner;
}

std::unique_ptr<AttentionCore::State> UlyssesAttention::make_state(Rank& rank) const {
  auto state = std::make_unique<UlyssesState>();
  const std::int64_t rows = config_.batch * group_.size * rows_;
  const auto add = [&](ChunkBuffers& buffers, std::int64_t columns, Category category) {
    buffers.push_back(rank.allocate({rows, columns}, config_.dtype, category));
  };
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    add(state->received, columns(chunk), Category::activation);
    add(state->o, q_columns(), Category::activation);
    add(state->sent, columns(chunk), Category::communication);
    add(state->returned, columns(chunk), Category::communication);
    add(state->local_o, q_columns(), Category::communication);
    state->inner.push_back(inner_->make_state(rank));
  }
  if (chunks_per_kv() > 1)
    state->shared_kv = rank.allocate({rows, 2 * kv_columns()}, config_.dtype, Category::workspace);
  return state;
}

Heads UlyssesAttention::heads_of(const ChunkBuffers& buffers, int chunk) const {
  const Tensor& kv = buffer_of(buffers, kv_chunk(chunk));
  return {buffer_of(buffers, chunk).column_block(0, q_columns()),
          kv.column_block(q_columns(), kv_columns()),
          kv.column_block(q_columns() + kv_columns(), kv_columns())};
}

Tensor UlyssesAttention::gradient_of_o(const UlyssesState& state, int chunk) const {
  const Tensor& whole = buffer_of(state.returned, chunk);
  const Tensor flat = whole.reshape({whole.numel()});
  return flat.row_block(0, whole.rows() * q_columns()).reshape({whole.rows(), q_columns()});
}

/// All-to-all on the cp lane after what the compute lane has been given.
void UlyssesAttention::exchange(Rank& rank, const Tensor& from, const Tensor& to) const {
  rank.order(Lane::compute, Lane::cp);
  const std::int64_t rows = group_.size * rows_;
  for (std::int64_t entry = 0; entry < config_.batch; ++entry)
    all_to_all(rank, from.row_block(entry * rows, rows), to.row_block(entry * rows, rows), group_,
               Lane::cp);
}

/// For the result that leaves as the `turn`-th, where a fence is needed: all but the last two leave
/// before heads that are waited for, on the same lane.
Fence UlyssesAttention::signal_result(Rank& rank, int turn) const {
  return turn + 2 < chunks_ ? Fence{} : rank.signal(Lane::cp);
}

Fence UlyssesAttention::send_heads(Rank& rank, UlyssesState& state, const Heads& in,
                                   int chunk) const {
  const Tensor& sent = buffer_of(state.sent, chunk);
  for (std::int64_t entry = 0; entry < config_.batch; ++entry)
    for (int member = 0; member < group_.size; ++member) {
      const Tensor to = block(sent, entry, member);
      std::int64_t next = 0;
      const auto pack = [&](const Tensor& from, std::int64_t first, std::int64_t count) {
        copy(rank, sequence(from, entry).column_block(first, count), to.column_block(next, count));
        next += count;
      };
      pack(in.q, first_q(member, chunk), q_columns());
      if (chunk != kv_chunk(chunk)) continue;
      pack(in.k, first_kv(member, chunk), kv_columns());
      pack(in.v, first_kv(member, chunk), kv_columns());
    }
  exchange(rank, sent, buffer_of(state.received, chunk));
  return rank.signal(Lane::cp);
}

void UlyssesAttention::forward(Rank& rank, State& base, const Heads& in, const Tensor& o) const {
  const auto scope = rank.scope("ulysses_forward");
  auto& state = static_cast<UlyssesState&>(base);
  std::vector<Fence> returned;
  Fence arrived = send_heads(rank, state, in, 0);
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    const auto step_scope = rank.scope(message("step", chunk));
    const Fence needed = arrived;
    if (chunk + 1 < chunks_) arrived = send_heads(rank, state, in, chunk + 1);
    rank.await(needed, Lane::compute);
    const Tensor& result = buffer_of(state.o, chunk);
    inner_->forward(rank, *state.inner[static_cast<std::size_t>(chunk)],
                    heads_of(state.received, chunk), result);
    exchange(rank, result, buffer_of(state.local_o, chunk));
    returned.push_back(signal_result(rank, chunk));
  }
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    await_result(rank, returned[static_cast<std::size_t>(chunk)]);
    for (std::int64_t entry = 0; entry < config_.batch; ++entry)
      for (int member = 0; member < group_.size; ++member)
        copy(rank, block(buffer_of(state.local_o, chunk), entry, member),
             sequence(o, entry).column_block(first_q(member, chunk), q_columns()));
  }
}

Fence UlyssesAttention::send_gradient_of_o(Rank& rank, UlyssesState& state, const Tensor& d_o,
                                           int chunk) const {
  const Tensor& sent = buffer_of(state.local_o, chunk);
  for (std::int64_t entry = 0; entry < config_.batch; ++entry)
    for (int member = 0; member < group_.size; ++member)
      copy(rank, sequence(d_o, entry).column_block(first_q(member, chunk), q_columns()),
           block(sent, entry, member));
  exchange(rank, sent, gradient_of_o(state, chunk));
  return rank.signal(Lane::cp);
}

/// Leaves the gradients in `sent`. The last of the chunks that share a KV head comes first: it
/// writes what the others add to.
void UlyssesAttention::inner_backward(Rank& rank, UlyssesState& state, int chunk) const {
  Heads gradients = heads_of(state.sent, chunk);
  const Heads sums = gradients;
  const bool adds = chunk + 1 < chunks_ && kv_chunk(chunk + 1) == kv_chunk(chunk);
  if (adds) {
    gradients.k = state.shared_kv.tensor().column_block(0, kv_columns());
    gradients.v = state.shared_kv.tensor().column_block(kv_columns(), kv_columns());
  }
  inner_->backward(rank, *state.inner[static_cast<std::size_t>(chunk)],
                   heads_of(state.received, chunk), buffer_of(state.o, chunk),
                   gradient_of_o(state, chunk), gradients);
  if (!adds) return;
  add(rank, sums.k, gradients.k, sums.k);
  add(rank, sums.v, gradients.v, sums.v);
}

/// Unpacks what has returned. A KV head that several members hold is the sum of theirs.
void UlyssesAttention::take_gradients(Rank& rank, UlyssesState& state, const Heads& gradients,
                                      int chunk) const {
  for (std::int64_t entry = 0; entry < config_.batch; ++entry)
    for (int member = 0; member < group_.size; ++member) {
      const Tensor from = block(buffer_of(state.returned, chunk), entry, member);
      std::int64_t next = 0;
      const auto unpack = [&](const Tensor& into, std::int64_t first, std::int64_t count,
                              bool adds) {
        const Tensor part = from.column_block(next, count);
        const Tensor to = sequence(into, entry).column_block(first, count);
        if (adds)
          add(rank, to, part, to);
        else
          copy(rank, part, to);
        next += count;
      };
      unpack(gradients.q, first_q(member, chunk), q_columns(), false);
      if (chunk != kv_chunk(chunk)) continue;
      const bool adds = member % members_per_kv() != 0;
      unpack(gradients.k, first_kv(member, chunk), kv_columns(), adds);
      unpack(gradients.v, first_kv(member, chunk), kv_columns(), adds);
    }
}

void UlyssesAttention::backward(Rank& rank, State& base, const Heads&, const Tensor&,
                                const Tensor& d_o, const Heads& gradients) const {
  const auto scope = rank.scope("ulysses_backward");
  auto& state = static_cast<UlyssesState&>(base);
  std::vector<Fence> returned;
  Fence arrived = send_gradient_of_o(rank, state, d_o, chunks_ - 1);
  for (int chunk = chunks_ - 1; chunk >= 0; --chunk) {
    const auto step_scope = rank.scope(message("step", chunk));
    const Fence needed = arrived;
    if (chunk > 0) arrived = send_gradient_of_o(rank, state, d_o, chunk - 1);
    rank.await(needed, Lane::compute);
    inner_backward(rank, state, chunk);
    exchange(rank, buffer_of(state.sent, chunk), buffer_of(state.returned, chunk));
    returned.push_back(signal_result(rank, chunks_ - 1 - chunk));
  }
  for (int chunk = chunks_ - 1; chunk >= 0; --chunk) {
    await_result(rank, returned[static_cast<std::size_t>(chunks_ - 1 - chunk)]);
    take_gradients(rank, state, gradients, chunk);
  }
}

}  // namespace

std::unique_ptr<AttentionCore> make_ulysses_attention(const AttentionConfig& config) {
  if (config.context.ulysses_size() == 1) return make_ring_attention(config);
  return std::make_unique<UlyssesAttention>(config);
}

}  // namespace shardmark
