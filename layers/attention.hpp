#pragma once

#include "layers/attention_core.hpp"
#include "layers/linear.hpp"
#include "layers/shape.hpp"

#include <memory>

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
  /// What the core makes in forward and needs in backward.
  struct CoreResult {
    Buffer o;
    std::unique_ptr<AttentionCore::State> state;
  };
  struct State {
    ColumnParallelLinear::State qkv;
    RowParallelLinear::State projection;
    Tensor qkv_y;
    Buffer dqkv;
    std::shared_ptr<CoreResult> core;
    bool recomputes_core{false};
    /// Inference: from make_cache, of the request at hand. None: nothing is kept.
    Tensor cache{};
  };
  AttentionLayer(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] std::shared_ptr<CoreResult> make_core_result(Rank& rank) const;
  /// With `shared` (selective recomputation) other states use the same memory between this one's
  /// forward and backward, and backward, whole only, begins with the core's forward again.
  [[nodiscard]] State make_state(Rank& rank, std::shared_ptr<CoreResult> shared = nullptr) const;
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  /// See ColumnParallelLinear::sum_gradients.
  void sum_gradients(Rank& rank) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

  /// Memory for keys and values of all tokens of a request, LayerConfig::past and later ones: a row
  /// per token, sequence after sequence, columns [keys | values] of this rank's heads.
  [[nodiscard]] Buffer make_cache(Rank& rank) const;
  void list_cache(const Tensor& cache, Role role, NamedTensors& into) const;

 private:
  [[nodiscard]] Heads with_cache(Rank& rank, const State& state) const;
  [[nodiscard]] Heads heads(const Tensor& fused) const;
  void rotate(Rank& rank, const Tensor& fused, bool inverse) const;
  void run_core(Rank& rank, const State& state) const;

  ModelShape shape_;
  AttentionConfig attention_;
  std::int64_t tokens_;  ///< of this rank
  int position_;
  ColumnParallelLinear qkv_;
  std::unique_ptr<AttentionCore> core_;
  RowParallelLinear projection_;
};

}  // namespace shardmark
