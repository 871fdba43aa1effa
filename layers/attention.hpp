#pragma once

#include "layers/attention_core.hpp"
#include "layers/linear.hpp"
#include "layers/shape.hpp"

namespace shardmark {

/// What the attention core of this rank works on.
[[nodiscard]] AttentionConfig attention_config(const LayerConfig& config);

/// Multi-head attention split by heads: this rank computes q, k and v of its own heads with one
/// fused column-parallel projection (columns: query heads, key heads, value heads), runs their
/// attention alone, and a row-parallel projection sums the heads over the ranks.
///
/// Grouped-query attention: kv_heads >= tp splits KV heads like query heads; kv_heads < tp gives
/// each KV head to tp / kv_heads neighbours, whose gradients of it are summed (kv_heads x head_dim
/// columns of extra all-reduce per backward pass).
///
/// Under context parallelism the projections work on this rank's tokens and the AttentionCore
/// exchanges what its kind needs.
class AttentionLayer {
 public:
  struct State {
    ColumnParallelLinear::State qkv;
    RowParallelLinear::State projection;
    Tensor qkv_y;
    Buffer o, dqkv;
    std::unique_ptr<AttentionCore::State> core;
  };
  AttentionLayer(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  [[nodiscard]] Heads heads(const Tensor& fused) const;
  void rotate(Rank& rank, const Tensor& fused, bool inverse) const;

  ModelShape shape_;
  AttentionConfig attention_;
  std::int64_t tokens_;  ///< of this rank
  int position_;
  ColumnParallelLinear qkv_;
  std::unique_ptr<AttentionCore> core_;
  RowParallelLinear projection_;
};

}  // namespace shardmark
