#include "layers/mlp.hpp"

#include "core/error.hpp"

#include <cmath>

namespace shardmark {
namespace {

/// Exact data: pre-activations are multiples of 128, where GeLU and SiLU do not round.
ColumnParallelLinear::Config fc1_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t width = shape.ffn / config.parallel.tp.size;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.hidden));
  const auto part = [&](const char* of, double unit) {
    return ShardPart{
        of,    {shape.hidden, shape.ffn},
        0,     config.parallel.tp.position * width,
        width, Init{0, scale, ExactRule::sparse, unit, shape.mlp_inputs() == 2 ? 2.0 : 4.0}};
  };
  ColumnParallelLinear::Config fc1{.name = "fc1",
                                   .parallel = config.parallel,
                                   .dtype = config.dtype,
                                   .accumulate_gradients = config.accumulate_gradients,
                                   .tokens = config.tokens(),
                                   .in = shape.hidden,
                                   .bias = shape.biases};
  if (shape.mlp == MlpKind::swiglu)
    fc1.parts = {part("gate", 128), part("up", 1)};
  else
    fc1.parts = {part("", 128)};
  return fc1;
}

RowParallelLinear::Config fc2_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t width = shape.ffn / config.parallel.tp.size;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.ffn));
  return {.name = "fc2",
          .parallel = config.parallel,
          .dtype = config.dtype,
          .accumulate_gradients = config.accumulate_gradients,
          .tokens = config.tokens(),
          .out = shape.hidden,
          .global_in = shape.ffn,
          .first = config.parallel.tp.position * width,
          .in = width,
          .init = Init{0, scale, ExactRule::sparse, 1},
          .bias = shape.biases};
}

}  // namespace

Mlp::Mlp(Rank& rank, const LayerConfig& config, TokenScratch& scratch)
    : kind_{config.shape.mlp},
      gelu_{config.shape.gelu},
      dtype_{config.dtype},
      tokens_{config.tokens()},
      width_{config.shape.ffn / config.parallel.tp.size},
      global_width_{config.shape.ffn},
      first_{config.parallel.tp.position * width_},
      fc1_{rank, fc1_config(config), scratch},
      fc2_{rank, fc2_config(config), scratch} {}

Mlp::State Mlp::make_state(Rank& rank) const {
  State state;
  state.fc1 = fc1_.make_state(rank);
  state.fc2 = fc2_.make_state(rank);
  state.activated = rank.allocate({tokens_, width_}, dtype_, Category::activation);
  state.dpre = rank.allocate({tokens_, fc1_.columns()}, dtype_, Category::gradient);
  return state;
}

Tensor Mlp::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope("mlp");
  state.pre = fc1_.forward(rank, state.fc1, x);
  const Tensor activated = state.activated.tensor();
  if (kind_ == MlpKind::swiglu)
    swiglu(rank, state.pre.column_block(0, width_), state.pre.column_block(width_, width_),
           activated);
  else
    gelu(rank, state.pre, activated, gelu_);
  return fc2_.forward(rank, state.fc2, activated);
}

Tensor Mlp::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope("mlp");
  const Tensor dactivated = fc2_.backward(rank, state.fc2, dy, part);
  const Tensor dpre = state.dpre.tensor();
  if (has_input(part)) {
    if (kind_ == MlpKind::swiglu)
      swiglu_backward(
          rank, {state.pre.column_block(0, width_), state.pre.column_block(width_, width_),
                 dactivated, dpre.column_block(0, width_), dpre.column_block(width_, width_)});
    else
      gelu_backward(rank, state.pre, dactivated, dpre, gelu_);
  }
  return fc1_.backward(rank, state.fc1, dpre, part);
}

void Mlp::list_weights(NamedTensors& into) const {
  const Prefix prefix{into, "mlp"};
  fc1_.list_weights(into);
  fc2_.list_weights(into);
}

void Mlp::list_state(const State& state, NamedTensors& into) const {
  const Prefix prefix{into, "mlp"};
  fc1_.list_state(state.fc1, into);
  const std::string formula = kind_ == MlpKind::swiglu
                                  ? "silu(fc1/gate/y) * fc1/up/y"
                                  : message("gelu_", name_of(gelu_), "(fc1/y)");
  ShardPart part{"activated", {tokens_, global_width_}, 0, first_, width_, {}};
  into.push_back(
      column_tensor("activated", state.activated.tensor(), Role::activation, {part}, formula));
  fc2_.list_state(state.fc2, into);
}

}  // namespace shardmark
