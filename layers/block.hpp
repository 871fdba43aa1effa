#pragma once

#include "layers/attention.hpp"
#include "layers/mlp.hpp"
#include "layers/norm.hpp"

#include <string>

namespace shardmark {

/// A norm over the hidden width of a model.
[[nodiscard]] NormLayer::Config norm_config(const LayerConfig& config, std::string name);

/// Pre-norm transformer block on x_TD:
///   x1 = x + attention(norm1(x)),  y = x1 + mlp(norm2(x1)).
/// Without sequence parallelism 2 all-reduces forward and 2 backward; with it 2 all-gathers and 2
/// reduce-scatters forward, the same backward plus 2 all-gathers to re-gather the linears' inputs
/// (unless they are kept).
class TransformerBlock {
 public:
  struct State {
    NormLayer::State norm1, norm2;
    AttentionLayer::State attention;
    Mlp::State mlp;
    Buffer x1, y, dx1, dx;
  };
  TransformerBlock(Rank& rank, const LayerConfig& config, std::string name, TokenScratch& scratch);
  /// `core`: see AttentionLayer::make_state.
  [[nodiscard]] State make_state(Rank& rank,
                                 std::shared_ptr<AttentionLayer::CoreResult> core = nullptr) const;
  [[nodiscard]] std::shared_ptr<AttentionLayer::CoreResult> make_core_result(Rank& rank) const {
    return attention_.make_core_result(rank);
  }
  /// Returns y_TD, in `y` if given, else in the state.
  Tensor forward(Rank& rank, State& state, const Tensor& x, const Tensor& y = {}) const;
  /// Returns dx_TD, in `dx` if given, else in the state.
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part,
                  const Tensor& dx = {}) const;
  /// What ranks sum of gradients once all tokens are in. Part of backward, but with
  /// accumulate_gradients the caller's business, once, behind the last micro-batch.
  void sum_gradients(Rank& rank) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

  /// Inference: keys and values of a request, see AttentionLayer.
  [[nodiscard]] Buffer make_cache(Rank& rank) const { return attention_.make_cache(rank); }
  void list_cache(const Tensor& cache, Role role, NamedTensors& into) const;

 private:
  LayerConfig config_;
  std::string name_;
  NormLayer norm1_, norm2_;
  AttentionLayer attention_;
  Mlp mlp_;
};

}  // namespace shardmark
