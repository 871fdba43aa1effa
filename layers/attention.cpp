#include "layers/attention.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark {
namespace {

std::int64_t local_kv_heads(const LayerConfig& config) {
  return std::max<std::int64_t>(1, config.shape.kv_heads / config.parallel.tp.size);
}

/// Ranks that hold the same KV head.
int kv_sharers(const LayerConfig& config) {
  const auto kv_heads = static_cast<int>(config.shape.kv_heads);
  return std::max(1, config.parallel.tp.size / kv_heads);
}

ColumnParallelLinear::Config qkv_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const Group& tp = config.parallel.tp;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.hidden));
  const auto part = [&](const char* of, std::int64_t width, std::int64_t first, std::int64_t count,
                        ExactRule rule) {
    return ShardPart{
        of, {shape.hidden, width}, 0, first, count, Init{0, scale, rule, 1, 4, shape.head_dim}};
  };
  const std::int64_t q_count = shape.query_width() / tp.size;
  const std::int64_t kv_count = local_kv_heads(config) * shape.head_dim;
  const std::int64_t kv_first = tp.position / kv_sharers(config) * kv_count;
  ColumnParallelLinear::Config qkv{.name = "qkv",
                                   .parallel = config.parallel,
                                   .dtype = config.dtype,
                                   .tokens = shape.tokens(),
                                   .in = shape.hidden,
                                   .bias = shape.biases};
  qkv.parts = {part("query", shape.query_width(), tp.position * q_count, q_count,
                    ExactRule::attention_query),
               part("key", shape.kv_width(), kv_first, kv_count, ExactRule::attention_key),
               part("value", shape.kv_width(), kv_first, kv_count, ExactRule::attention_value)};
  qkv.shared_from = q_count;
  qkv.shared = tp.part(kv_sharers(config));
  return qkv;
}

RowParallelLinear::Config projection_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t width = shape.query_width() / config.parallel.tp.size;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.query_width()));
  return {.name = "projection",
          .parallel = config.parallel,
          .dtype = config.dtype,
          .tokens = shape.tokens(),
          .out = shape.hidden,
          .global_in = shape.query_width(),
          .first = config.parallel.tp.position * width,
          .in = width,
          .init = Init{0, scale, ExactRule::sparse, 1},
          .bias = shape.biases};
}

}  // namespace

AttentionLayer::AttentionLayer(Rank& rank, const LayerConfig& config, TokenScratch& scratch)
    : shape_{config.shape},
      dtype_{config.dtype},
      local_{config.shape.batch,
             config.shape.seq,
             config.shape.heads / config.parallel.tp.size,
             local_kv_heads(config),
             config.shape.head_dim,
             config.shape.causal},
      position_{config.parallel.tp.position},
      qkv_{rank, qkv_config(config), scratch},
      projection_{rank, projection_config(config), scratch} {}

AttentionLayer::State AttentionLayer::make_state(Rank& rank) const {
  State state;
  const std::int64_t tokens = shape_.tokens();
  state.qkv = qkv_.make_state(rank);
  state.projection = projection_.make_state(rank);
  state.o = rank.allocate({tokens, local_.heads * local_.head_dim}, dtype_, Category::activation);
  state.lse =
      rank.allocate({local_.batch, local_.heads, local_.seq}, DType::f32, Category::activation);
  state.dqkv = rank.allocate({tokens, qkv_.columns()}, dtype_, Category::gradient);
  return state;
}

AttentionLayer::Heads AttentionLayer::heads(const Tensor& fused) const {
  const std::int64_t q = local_.heads * local_.head_dim;
  const std::int64_t kv = local_.kv_heads * local_.head_dim;
  return {fused.column_block(0, q), fused.column_block(q, kv), fused.column_block(q + kv, kv)};
}

/// Queries and keys are neighbours in the fused tensor, so one op rotates both.
void AttentionLayer::rotate(Rank& rank, const Tensor& fused, bool inverse) const {
  if (shape_.positions != Positions::rotary) return;
  const std::int64_t count = local_.heads + local_.kv_heads;
  rope(rank, {fused.column_block(0, count * local_.head_dim), local_.seq, count, local_.head_dim,
              shape_.rope_theta, inverse});
}

Tensor AttentionLayer::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope("attention");
  state.qkv_y = qkv_.forward(rank, state.qkv, x);
  rotate(rank, state.qkv_y, false);
  const auto [q, k, v] = heads(state.qkv_y);
  attention(rank, {q, k, v, state.o.tensor(), state.lse.tensor(), local_});
  return projection_.forward(rank, state.projection, state.o.tensor());
}

Tensor AttentionLayer::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope("attention");
  const Tensor d_o = projection_.backward(rank, state.projection, dy, part);
  const Tensor dqkv = state.dqkv.tensor();
  if (has_input(part)) {
    const auto [q, k, v] = heads(state.qkv_y);
    const auto [dq, dk, dv] = heads(dqkv);
    attention_backward(rank,
                       {q, k, v, state.o.tensor(), state.lse.tensor(), d_o, dq, dk, dv, local_});
    rotate(rank, dqkv, true);
  }
  return qkv_.backward(rank, state.qkv, dqkv, part);
}

void AttentionLayer::list_weights(NamedTensors& into) const {
  const Prefix prefix{into, "attention"};
  qkv_.list_weights(into);
  projection_.list_weights(into);
}

void AttentionLayer::list_state(const State& state, NamedTensors& into) const {
  const Prefix prefix{into, "attention"};
  qkv_.list_state(state.qkv, into);
  if (shape_.positions == Positions::rotary)
    into[into.size() - 2].formula += ", query and key rotated";
  const std::int64_t width = local_.heads * local_.head_dim;
  ShardPart part{"o", {shape_.tokens(), shape_.query_width()}, 0, position_ * width, width, {}};
  into.push_back(column_tensor("o", state.o.tensor(), Role::activation, {part},
                               "softmax(query key^T / sqrt(head_dim)) value per head"));
  projection_.list_state(state.projection, into);
}

}  // namespace shardmark
