#include "layers/attention.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark {
namespace {

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
  const std::int64_t kv_count = config.local_kv_heads() * shape.head_dim;
  const std::int64_t kv_first = tp.position / kv_sharers(config) * kv_count;
  ColumnParallelLinear::Config qkv{.name = "qkv",
                                   .parallel = config.parallel,
                                   .dtype = config.dtype,
                                   .accumulate_gradients = config.accumulate_gradients,
                                   .tokens = config.tokens(),
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
          .accumulate_gradients = config.accumulate_gradients,
          .tokens = config.tokens(),
          .out = shape.hidden,
          .global_in = shape.query_width(),
          .first = config.parallel.tp.position * width,
          .in = width,
          .init = Init{0, scale, ExactRule::sparse, 1},
          .bias = shape.biases};
}

}  // namespace

AttentionConfig attention_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  return {.batch = shape.batch,
          .seq = shape.seq,
          .heads = shape.heads / config.parallel.tp.size,
          .kv_heads = config.local_kv_heads(),
          .head_dim = shape.head_dim,
          .causal = shape.causal,
          .window = shape.window,
          .starts = shape.starts(),
          .dtype = config.dtype,
          .context = config.parallel.context,
          .overlap = config.parallel.overlap,
          .past = config.past};
}

AttentionLayer::AttentionLayer(Rank& rank, const LayerConfig& config, TokenScratch& scratch)
    : shape_{config.shape},
      attention_{attention_config(config)},
      tokens_{config.tokens()},
      position_{config.parallel.tp.position},
      qkv_{rank, qkv_config(config), scratch},
      core_{make_attention_core(attention_)},
      projection_{rank, projection_config(config), scratch} {}

std::shared_ptr<AttentionLayer::CoreResult> AttentionLayer::make_core_result(Rank& rank) const {
  auto result = std::make_shared<CoreResult>();
  result->o = rank.allocate({tokens_, attention_.heads * attention_.head_dim}, attention_.dtype,
                            Category::activation);
  result->state = core_->make_state(rank);
  return result;
}

AttentionLayer::State AttentionLayer::make_state(Rank& rank,
                                                 std::shared_ptr<CoreResult> shared) const {
  State state;
  state.qkv = qkv_.make_state(rank);
  state.projection = projection_.make_state(rank);
  state.recomputes_core = shared != nullptr;
  state.core = shared ? std::move(shared) : make_core_result(rank);
  state.dqkv = rank.allocate({tokens_, qkv_.columns()}, attention_.dtype, Category::gradient);
  return state;
}

Heads AttentionLayer::heads(const Tensor& fused) const {
  const std::int64_t q = attention_.heads * attention_.head_dim;
  const std::int64_t kv = attention_.kv_heads * attention_.head_dim;
  return {fused.column_block(0, q), fused.column_block(q, kv), fused.column_block(q + kv, kv)};
}

/// Queries and keys are neighbours in the fused tensor, so one op rotates both.
void AttentionLayer::rotate(Rank& rank, const Tensor& fused, bool inverse) const {
  if (shape_.positions != Positions::rotary) return;
  const std::int64_t count = attention_.heads + attention_.kv_heads;
  const ContextParallel& context = attention_.context;
  const std::int64_t past = attention_.past, seq = attention_.seq;
  Places places;
  if (context.is_split()) places = context.local_places(seq);
  if (past > 0) places = Places::all(past + seq).slice(past, seq);
  rope(rank, {fused.column_block(0, count * attention_.head_dim), seq / context.cp.size, count,
              attention_.head_dim, shape_.rope_theta, inverse, places, attention_.starts});
}

/// Puts keys and values of the new tokens behind the past ones.
Heads AttentionLayer::with_cache(Rank& rank, const State& state) const {
  const std::int64_t q = attention_.heads * attention_.head_dim;
  const std::int64_t kv = attention_.kv_heads * attention_.head_dim;
  const std::int64_t batch = attention_.batch, past = attention_.past, seq = attention_.seq;
  SHARDMARK_CHECK(past == 0 || seq == 1, seq, " tokens at once behind cached ones");
  const Tensor cache = state.cache;
  // With a sequence as a row, its last token is a column block.
  const Tensor latest =
      past == 0 ? cache
                : cache.reshape({batch, (past + 1) * 2 * kv}).column_block(past * 2 * kv, 2 * kv);
  copy(rank, state.qkv_y.column_block(q, 2 * kv), latest);
  return {state.qkv_y.column_block(0, q), cache.column_block(0, kv), cache.column_block(kv, kv)};
}

void AttentionLayer::run_core(Rank& rank, const State& state) const {
  core_->forward(rank, *state.core->state,
                 state.cache ? with_cache(rank, state) : heads(state.qkv_y),
                 state.core->o.tensor());
}

Tensor AttentionLayer::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope("attention");
  state.qkv_y = qkv_.forward(rank, state.qkv, x);
  rotate(rank, state.qkv_y, false);
  run_core(rank, state);
  return projection_.forward(rank, state.projection, state.core->o.tensor());
}

Tensor AttentionLayer::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope("attention");
  if (state.recomputes_core) {
    SHARDMARK_CHECK(part == Part::both, "a recomputed core would be gone before Part::weight");
    const auto again = rank.scope("recompute");
    run_core(rank, state);
  }
  const Tensor d_o = projection_.backward(rank, state.projection, dy, part);
  const Tensor dqkv = state.dqkv.tensor();
  if (has_input(part)) {
    core_->backward(rank, *state.core->state, heads(state.qkv_y), state.core->o.tensor(), d_o,
                    heads(dqkv));
    rotate(rank, dqkv, true);
  }
  return qkv_.backward(rank, state.qkv, dqkv, part);
}

void AttentionLayer::sum_gradients(Rank& rank) const {
  const auto scope = rank.scope("attention");
  qkv_.sum_gradients(rank);
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
  const std::int64_t width = attention_.heads * attention_.head_dim;
  ShardPart part{"o", {tokens_, shape_.query_width()}, 0, position_ * width, width, {}};
  into.push_back(column_tensor("o", state.core->o.tensor(), Role::activation, {part},
                               "softmax(query key^T / sqrt(head_dim)) value per head"));
  projection_.list_state(state.projection, into);
}

Buffer AttentionLayer::make_cache(Rank& rank) const {
  return rank.allocate({attention_.batch * (attention_.past + attention_.seq),
                        2 * attention_.kv_heads * attention_.head_dim},
                       attention_.dtype, Category::activation);
}

void AttentionLayer::list_cache(const Tensor& cache, Role role, NamedTensors& into) const {
  const Prefix prefix{into, "attention"};
  // Keys and values lie in the cache as in the fused projection, behind whose queries they come.
  std::vector<ShardPart> parts{qkv_.config().parts.begin() + 1, qkv_.config().parts.end()};
  std::int64_t first = 0;
  for (ShardPart& part : parts) {
    part.of = "cache/" + part.of;
    part.global_shape = {cache.rows(), shape_.kv_width()};
    part.local_first = first;
    part.init = Init{0, std::sqrt(3.0)};  // unit variance, as projections of normalised x have
    first += part.count;
  }
  into.push_back(column_tensor("cache", cache, role, std::move(parts), "key and value of qkv/y"));
}

}  // namespace shardmark
