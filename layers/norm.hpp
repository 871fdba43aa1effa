#pragma once

#include "layers/parallel.hpp"

#include <string>

namespace shardmark {

/// Layer norm (Ba et al., arXiv 1607.06450) or RMS norm (Zhang and Sennrich, arXiv 1910.07467) over
/// the last dim D of x_TD. Acts on the rank's own tokens; gain and bias are replicated. Under
/// sequence parallelism each rank sees only its tokens, so the gradients of gain and bias are
/// all-reduced over tp: 2(t-1)/t x (1 or 2) x D x 4 bytes per backward pass.
class NormLayer {
 public:
  struct Config {
    std::string name;
    Parallel parallel;
    DType dtype{DType::f32};
    bool accumulate_gradients{false};  ///< see LayerConfig
    std::int64_t tokens{0}, width{0};
    NormKind kind{NormKind::layer};
    float epsilon{1e-5F};
  };
  struct State {
    Tensor x;
    Buffer y, stats, dx;
  };

  NormLayer(Rank& rank, Config config);
  [[nodiscard]] State make_state(Rank& rank) const;
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  /// Gain and bias gradients come with dx; Part::weight only sums them over the ranks.
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  /// That sum under sequence parallelism; with accumulate_gradients the caller's business, once,
  /// behind the last micro-batch.
  void sum_gradients(Rank& rank) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  Config config_;
  Buffer gain_, bias_, gradients_;  ///< gradients: row 0 gain, row 1 bias (layer norm only)
};

}  // namespace shardmark
