#include "layers/norm.hpp"

namespace shardmark {

NormLayer::NormLayer(Rank& rank, Config config) : config_{std::move(config)} {
  const bool has_bias = config_.kind == NormKind::layer;
  gain_ = rank.allocate({config_.width}, config_.dtype, Category::weight);
  if (has_bias) bias_ = rank.allocate({config_.width}, config_.dtype, Category::weight);
  gradients_ = rank.allocate({has_bias ? 2 : 1, config_.width}, DType::f32, Category::gradient);
}

NormLayer::State NormLayer::make_state(Rank& rank) const {
  State state;
  const std::int64_t tokens = config_.parallel.local_tokens(config_.tokens);
  state.y = rank.allocate({tokens, config_.width}, config_.dtype, Category::activation);
  state.stats = rank.allocate({tokens, 2}, DType::f32, Category::activation);
  state.dx = rank.allocate({tokens, config_.width}, config_.dtype, Category::gradient);
  return state;
}

Tensor NormLayer::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope(config_.name);
  state.x = x;
  norm(rank, {x, gain_.tensor(), bias_.tensor(), state.y.tensor(), state.stats.tensor(),
              config_.kind, config_.epsilon});
  return state.y.tensor();
}

Tensor NormLayer::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope(config_.name);
  const Tensor gradients = gradients_.tensor();
  if (has_input(part)) {
    Tensor dbias;
    if (bias_.tensor()) dbias = gradients.row_block(1, 1);
    norm_backward(rank,
                  {state.x, gain_.tensor(), state.stats.tensor(), dy, state.dx.tensor(),
                   gradients.row_block(0, 1), dbias, config_.kind, config_.accumulate_gradients});
  }
  if (has_weight(part) && config_.parallel.sequence_parallel && !config_.accumulate_gradients)
    reduce_gradient(rank, config_.parallel, gradients);
  return state.dx.tensor();
}

void NormLayer::sum_gradients(Rank& rank) const {
  if (!config_.parallel.sequence_parallel) return;
  const auto scope = rank.scope(config_.name);
  reduce_gradient(rank, config_.parallel, gradients_.tensor());
}

void NormLayer::list_weights(NamedTensors& into) const {
  const Shape vector{config_.width};
  const Tensor gradients = gradients_.tensor();
  into.push_back(replicated(config_.name + "/gain", gain_.tensor(), Role::weight, "",
                            Init{1, 0.2, ExactRule::one}));
  into.push_back(replicated(config_.name + "/gain_grad", gradients.row_block(0, 1).reshape(vector),
                            Role::gradient, "sum of y_grad * normalised x over tokens"));
  if (!bias_.tensor()) return;
  into.push_back(replicated(config_.name + "/bias", bias_.tensor(), Role::weight, "",
                            Init{0, 0.1, ExactRule::zero}));
  into.push_back(replicated(config_.name + "/bias_grad", gradients.row_block(1, 1).reshape(vector),
                            Role::gradient, "sum of y_grad over tokens"));
}

void NormLayer::list_state(const State& state, NamedTensors& into) const {
  into.push_back(token_tensor(config_.parallel, config_.name + "/y", state.y.tensor(),
                              config_.tokens, Role::activation, "norm(x) * gain + bias"));
  into.push_back(token_tensor(config_.parallel, config_.name + "/x_grad", state.dx.tensor(),
                              config_.tokens, Role::gradient, "norm backward of y_grad"));
}

}  // namespace shardmark
