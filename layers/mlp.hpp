#pragma once

#include "layers/linear.hpp"
#include "layers/shape.hpp"

namespace shardmark {

/// y_TD = act(x_TD W1_DF) W2_FD, W1 split by columns and W2 by rows. The activation is elementwise,
/// so it commutes with the column split and one reduction per direction remains.
///   gelu:   act(u) = gelu(u)
///   swiglu: act(gate | up) = silu(gate) * up; W1 holds this rank's gate columns, then its up
///           columns, so no communication is needed between them (Shazeer, arXiv 2002.05202).
class Mlp {
 public:
  struct State {
    ColumnParallelLinear::State fc1;
    RowParallelLinear::State fc2;
    Buffer activated, dpre;
    Tensor pre;
  };
  Mlp(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  MlpKind kind_;
  GeluKind gelu_;
  DType dtype_;
  std::int64_t tokens_, width_, global_width_, first_;  ///< width: this rank's share of ffn
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
};

}  // namespace shardmark
