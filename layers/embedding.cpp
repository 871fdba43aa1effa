#include "layers/embedding.hpp"

#include <cmath>

namespace shardmark {
namespace {

Init index_init(ExactRule rule, std::int64_t limit) { return {0, 0, rule, 1, 4, limit}; }

/// Of the head's matrix: logits of unit size. And of the table that it is tied to; otherwise the
/// table's own values are of unit size.
Init head_init(const LayerConfig& config) {
  return {0, std::sqrt(3.0 / static_cast<double>(config.shape.hidden)), ExactRule::sparse};
}

ColumnParallelLinear::Config logits_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t columns = shape.vocab / config.parallel.tp.size;
  ColumnParallelLinear::Config linear{.name = "logits",
                                      .parallel = config.parallel,
                                      .dtype = config.dtype,
                                      .accumulate_gradients = config.accumulate_gradients,
                                      .tokens = shape.tokens(),
                                      .in = shape.hidden,
                                      .transposed = config.tied_embeddings};
  linear.parts = {{"",
                   {shape.hidden, shape.vocab},
                   0,
                   config.parallel.tp.position * columns,
                   columns,
                   head_init(config)}};
  return linear;
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(Rank& rank, const LayerConfig& config,
                                               TokenScratch& scratch)
    : config_{config}, scratch_{&scratch}, rows_{config.shape.vocab / config.parallel.tp.size} {
  const ModelShape& shape = config.shape;
  table_ = rank.allocate({rows_, shape.hidden}, config.dtype, Category::weight);
  dtable_ = rank.allocate({rows_, shape.hidden}, DType::f32, Category::gradient);
  if (shape.positions != Positions::learned) return;
  const Shape positions{config.past + shape.seq, shape.hidden};
  positions_ = rank.allocate(positions, config.dtype, Category::weight);
  dpositions_ = rank.allocate(positions, DType::f32, Category::gradient);
}

VocabParallelEmbedding::State VocabParallelEmbedding::make_state(Rank& rank) const {
  State state;
  const std::int64_t tokens = config_.shape.tokens();
  const std::int64_t local = config_.parallel.local_tokens(tokens);
  state.ids = rank.allocate({tokens}, DType::i32, Category::activation);
  if (positions_.tensor())
    state.position_ids = rank.allocate({local}, DType::i32, Category::activation);
  state.y = rank.allocate({local, config_.shape.hidden}, config_.dtype, Category::activation);
  return state;
}

Tensor VocabParallelEmbedding::forward(Rank& rank, State& state) const {
  const auto scope = rank.scope("embedding");
  const Parallel& parallel = config_.parallel;
  const Tensor y = state.y.tensor();
  const Tensor partial = parallel.sequence_parallel ? scratch_->partial.tensor() : y;
  const std::int64_t first = parallel.tp.position * rows_;
  for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
    embedding(rank, {token_chunk(parallel, state.ids.tensor(), chunk), table_.tensor(),
                     token_chunk(parallel, partial, chunk), first, false});
    reduce_chunk(rank, parallel, partial, y, chunk);
  }
  if (parallel.tp.size > 1) rank.order(Lane::tp, Lane::compute);
  if (positions_.tensor())
    embedding(rank, {state.position_ids.tensor(), positions_.tensor(), y, 0, true});
  return y;
}

void VocabParallelEmbedding::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope("embedding");
  const Parallel& parallel = config_.parallel;
  if (has_input(part)) state.dy = dy;
  if (!has_weight(part)) return;
  Tensor dy_TD = state.dy;
  if (parallel.sequence_parallel) {
    dy_TD = scratch_->gathered.tensor();
    rank.await(gather_tokens(rank, parallel, state.dy, dy_TD), Lane::compute);
  }
  const bool accumulate = config_.accumulate_gradients;
  embedding_backward(rank, {state.ids.tensor(), dy_TD, dtable_.tensor(),
                            parallel.tp.position * rows_, accumulate});
  if (!positions_.tensor()) return;
  embedding_backward(rank,
                     {state.position_ids.tensor(), state.dy, dpositions_.tensor(), 0, accumulate});
  if (parallel.sequence_parallel && !accumulate)
    reduce_gradient(rank, parallel, dpositions_.tensor());
}

void VocabParallelEmbedding::sum_gradients(Rank& rank) const {
  if (!positions_.tensor() || !config_.parallel.sequence_parallel) return;
  const auto scope = rank.scope("embedding");
  reduce_gradient(rank, config_.parallel, dpositions_.tensor());
}

void VocabParallelEmbedding::list_weights(NamedTensors& into) const {
  const Prefix prefix{into, "embedding"};
  const ModelShape& shape = config_.shape;
  const auto table = [&](const char* name, const Tensor& tensor, Role role, const char* formula) {
    ShardPart part{
        name,  {shape.vocab, shape.hidden},
        0,     config_.parallel.tp.position * rows_,
        rows_, config_.tied_embeddings ? head_init(config_) : Init{0, 1, ExactRule::sparse}};
    into.push_back({name, tensor, role, 0, {std::move(part)}, formula});
  };
  table("table", table_.tensor(), Role::weight, "");
  table("table_grad", dtable_.tensor(), Role::gradient, "row v: sum of y_grad where id = v");
  if (!positions_.tensor()) return;
  into.push_back(replicated("positions", positions_.tensor(), Role::weight, "",
                            Init{0, 0.5, ExactRule::sparse}));
  into.push_back(replicated("positions_grad", dpositions_.tensor(), Role::gradient,
                            "row i: sum of y_grad at position i"));
}

void VocabParallelEmbedding::list_state(const State& state, NamedTensors& into) const {
  const Prefix prefix{into, "embedding"};
  const ModelShape& shape = config_.shape;
  into.push_back(replicated("ids", state.ids.tensor(), Role::input, "",
                            index_init(ExactRule::ids, shape.vocab)));
  if (state.position_ids.tensor()) {
    Init init = index_init(ExactRule::row_index, shape.seq);
    init.center = static_cast<double>(config_.past);
    into.push_back(token_tensor(config_.parallel, "position_ids", state.position_ids.tensor(),
                                shape.tokens(), Role::input, "", init));
  }
  into.push_back(token_tensor(config_.parallel, "y", state.y.tensor(), shape.tokens(),
                              Role::activation, "table[ids] (+ positions[position_ids])"));
}

VocabParallelHead::VocabParallelHead(Rank& rank, const LayerConfig& config, TokenScratch& scratch)
    : config_{config},
      columns_{config.shape.vocab / config.parallel.tp.size},
      linear_{rank, logits_config(config), scratch} {}

VocabParallelHead::State VocabParallelHead::make_state(Rank& rank) const {
  State state;
  const std::int64_t tokens = config_.shape.tokens();
  state.logits = linear_.make_state(rank);
  state.targets = rank.allocate({tokens}, DType::i32, Category::activation);
  state.maximum = rank.allocate({tokens}, DType::f32, Category::activation);
  state.partials = rank.allocate({2, tokens}, DType::f32, Category::activation);
  state.loss = rank.allocate({tokens}, DType::f32, Category::activation);
  state.dlogits = rank.allocate({tokens, columns_}, config_.dtype, Category::gradient);
  return state;
}

void VocabParallelHead::reduce(Rank& rank, const Tensor& tensor, Reduction reduction) const {
  const Group& tp = config_.parallel.tp;
  if (tp.size == 1) return;
  rank.order(Lane::compute, Lane::tp);
  all_reduce(rank, tensor, tp, Lane::tp, reduction);
  rank.order(Lane::tp, Lane::compute);
}

Tensor VocabParallelHead::logits(Rank& rank, State& state, const Tensor& x) const {
  const Tensor logits_TV = linear_.forward(rank, state.logits, x);
  row_max(rank, logits_TV, state.maximum.tensor());
  reduce(rank, state.maximum.tensor(), Reduction::max);
  return logits_TV;
}

Tensor VocabParallelHead::largest_logit(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope("head");
  (void)logits(rank, state, x);
  return state.maximum.tensor();
}

Tensor VocabParallelHead::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope("head");
  const Tensor maximum = state.maximum.tensor(), partials = state.partials.tensor();
  const Tensor logits_TV = logits(rank, state, x);
  cross_entropy_sum(rank, {logits_TV, state.targets.tensor(), maximum, partials,
                           config_.parallel.tp.position * columns_});
  reduce(rank, partials, Reduction::sum);
  cross_entropy_loss(rank, {maximum, partials, state.loss.tensor()});
  return state.loss.tensor();
}

Tensor VocabParallelHead::backward(Rank& rank, State& state, Part part) const {
  const auto scope = rank.scope("head");
  if (has_input(part))
    cross_entropy_backward(
        rank,
        {state.logits.y.tensor(), state.targets.tensor(), state.maximum.tensor(),
         state.partials.tensor(), state.dlogits.tensor(), config_.parallel.tp.position * columns_,
         1.0F / static_cast<float>(config_.shape.tokens() * config_.num_micro())});
  return linear_.backward(rank, state.logits, state.dlogits.tensor(), part);
}

void VocabParallelHead::list_weights(NamedTensors& into) const {
  const std::size_t weight = into.size();
  {
    const Prefix prefix{into, "head"};
    linear_.list_weights(into);
  }
  // The name of the global tensor makes its values.
  if (config_.tied_embeddings) into[weight].parts.front().of = "embedding/table";
}

void VocabParallelHead::list_state(const State& state, NamedTensors& into) const {
  const Prefix prefix{into, "head"};
  into.push_back(replicated("targets", state.targets.tensor(), Role::input, "",
                            index_init(ExactRule::ids, config_.shape.vocab)));
  linear_.list_state(state.logits, into);
  into.push_back(replicated("loss", state.loss.tensor(), Role::output,
                            "log(sum(exp(logits))) - logits[target] per token"));
  const std::int64_t first = config_.parallel.tp.position * columns_;
  ShardPart part{
      "logits_grad", {config_.shape.tokens(), config_.shape.vocab}, 0, first, columns_, {}};
  into.push_back(column_tensor("logits_grad", state.dlogits.tensor(), Role::gradient, {part},
                               "(softmax(logits) - one_hot(targets)) / tokens"));
}

}  // namespace shardmark
