#include "layers/block.hpp"

namespace shardmark {

NormLayer::Config norm_config(const LayerConfig& config, std::string name) {
  return {.name = std::move(name),
          .parallel = config.parallel,
          .dtype = config.dtype,
          .accumulate_gradients = config.accumulate_gradients,
          .tokens = config.tokens(),
          .width = config.shape.hidden,
          .kind = config.shape.norm,
          .epsilon = config.shape.norm_epsilon};
}

TransformerBlock::TransformerBlock(Rank& rank, const LayerConfig& config, std::string name,
                                   TokenScratch& scratch)
    : config_{config},
      name_{std::move(name)},
      norm1_{rank, norm_config(config, "norm1")},
      norm2_{rank, norm_config(config, "norm2")},
      attention_{rank, config, scratch},
      mlp_{rank, config, scratch} {}

TransformerBlock::State TransformerBlock::make_state(
    Rank& rank, std::shared_ptr<AttentionLayer::CoreResult> core) const {
  State state;
  state.norm1 = norm1_.make_state(rank);
  state.norm2 = norm2_.make_state(rank);
  state.attention = attention_.make_state(rank, std::move(core));
  state.mlp = mlp_.make_state(rank);
  const std::int64_t tokens = config_.parallel.local_tokens(config_.tokens());
  for (Buffer* buffer : {&state.x1, &state.y})
    *buffer = rank.allocate({tokens, config_.shape.hidden}, config_.dtype, Category::activation);
  for (Buffer* buffer : {&state.dx1, &state.dx})
    *buffer = rank.allocate({tokens, config_.shape.hidden}, config_.dtype, Category::gradient);
  return state;
}

Tensor TransformerBlock::forward(Rank& rank, State& state, const Tensor& x, const Tensor& y) const {
  const auto scope = rank.scope(name_);
  const Tensor x1 = state.x1.tensor(), result = y ? y : state.y.tensor();
  const Tensor attended =
      attention_.forward(rank, state.attention, norm1_.forward(rank, state.norm1, x));
  add(rank, x, attended, x1);
  const Tensor mixed = mlp_.forward(rank, state.mlp, norm2_.forward(rank, state.norm2, x1));
  add(rank, x1, mixed, result);
  return result;
}

Tensor TransformerBlock::backward(Rank& rank, State& state, const Tensor& dy, Part part,
                                  const Tensor& dx) const {
  const auto scope = rank.scope(name_);
  const Tensor dx1 = state.dx1.tensor(), result = dx ? dx : state.dx.tensor();
  const Tensor through_mlp =
      norm2_.backward(rank, state.norm2, mlp_.backward(rank, state.mlp, dy, part), part);
  if (has_input(part)) add(rank, dy, through_mlp, dx1);
  const Tensor through_attention = norm1_.backward(
      rank, state.norm1, attention_.backward(rank, state.attention, dx1, part), part);
  if (has_input(part)) add(rank, dx1, through_attention, result);
  return result;
}

void TransformerBlock::sum_gradients(Rank& rank) const {
  const auto scope = rank.scope(name_);
  norm1_.sum_gradients(rank);
  attention_.sum_gradients(rank);
  norm2_.sum_gradients(rank);
}

void TransformerBlock::list_weights(NamedTensors& into) const {
  const Prefix prefix{into, name_};
  norm1_.list_weights(into);
  attention_.list_weights(into);
  norm2_.list_weights(into);
  mlp_.list_weights(into);
}

void TransformerBlock::list_state(const State& state, NamedTensors& into) const {
  const Prefix prefix{into, name_};
  const std::int64_t tokens = config_.tokens();
  const auto list = [&](const char* name, const Buffer& buffer, Role role, const char* formula) {
    into.push_back(token_tensor(config_.parallel, name, buffer.tensor(), tokens, role, formula));
  };
  norm1_.list_state(state.norm1, into);
  attention_.list_state(state.attention, into);
  list("x1", state.x1, Role::activation, "x + attention/projection/y");
  norm2_.list_state(state.norm2, into);
  mlp_.list_state(state.mlp, into);
  list("y", state.y, Role::activation, "x1 + mlp/fc2/y");
  list("x1_grad", state.dx1, Role::gradient, "y_grad + norm2/x_grad");
  list("x_grad", state.dx, Role::gradient, "x1_grad + norm1/x_grad");
}

void TransformerBlock::list_cache(const Tensor& cache, Role role, NamedTensors& into) const {
  const Prefix prefix{into, name_};
  attention_.list_cache(cache, role, into);
}

}  // namespace shardmark
