#include "layers/attention_core.hpp"

#include "core/error.hpp"

namespace shardmark {
namespace {

class LocalAttention final : public AttentionCore {
 public:
  explicit LocalAttention(const AttentionConfig& config)
      : config_{config},
        keys_{config_.past > 0 ? Places::all(config_.past + config_.seq)
                               : config_.context.group_places(config_.seq)},
        queries_{config_.past > 0 ? keys_.slice(config_.past, config_.seq) : keys_} {
    SHARDMARK_CHECK(config_.context.ring_group().size == 1, "local attention to a split sequence");
  }

  std::unique_ptr<State> make_state(Rank& rank) const override {
    auto state = std::make_unique<LocalState>();
    state->lse = rank.allocate({config_.batch, config_.heads, queries_.count()}, DType::f32,
                               Category::activation);
    return state;
  }

  void forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const override {
    attention(rank, {in.q, in.k, in.v, o, lse(state), shape()});
  }

  void backward(Rank& rank, State& state, const Heads& in, const Tensor& o, const Tensor& d_o,
                const Heads& gradients) const override {
    attention_backward(rank, {in.q, in.k, in.v, o, lse(state), d_o, gradients.q, gradients.k,
                              gradients.v, shape()});
  }

 private:
  struct LocalState final : State {
    Buffer lse;
  };
  static const Tensor& lse(const State& state) {
    return static_cast<const LocalState&>(state).lse.tensor();
  }
  [[nodiscard]] AttentionShape shape() const { return attention_shape(config_, queries_, keys_); }

  AttentionConfig config_;
  Places keys_, queries_;
};

}  // namespace

std::unique_ptr<AttentionCore> make_local_attention(const AttentionConfig& config) {
  return std::make_unique<LocalAttention>(config);
}

std::unique_ptr<AttentionCore> make_attention_core(const AttentionConfig& config) {
  if (!config.context.is_split()) return make_local_attention(config);
  switch (config.context.kind) {
    case ContextKind::ring:
      return make_ring_attention(config);
    case ContextKind::all_gather:
      return make_gather_attention(config);
    case ContextKind::ulysses:
    case ContextKind::hybrid:
      return make_ulysses_attention(config);
  }
  throw Error{message("no attention core for ", name_of(config.context.kind))};
}

AttentionShape attention_shape(const AttentionConfig& config, const Places& queries,
                               const Places& keys) {
  return {.batch = config.batch,
          .seq = queries.count(),
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .causal = config.causal,
          .window = config.window,
          .queries = queries,
          .keys = keys,
          .starts = config.starts};
}

}  // namespace shardmark
