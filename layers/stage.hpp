#pragma once

#include "layers/block.hpp"
#include "layers/embedding.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace shardmark {

/// Which part of a model a stage holds: blocks [first_block, last_block), with the embedding in
/// front of block 0 and the final norm and head behind the last one.
struct StageRange {
  std::int64_t first_block{0}, last_block{0};
  bool has_embedding{false}, has_head{false};
};
/// Of stage `stage` of the pipeline of `config`.
[[nodiscard]] StageRange stage_range(const LayerConfig& config, int stage);
/// The whole model in one stage.
[[nodiscard]] StageRange whole_model(const LayerConfig& config);

/// What the stages of a rank share when backward computes it again, one block at a time; the first
/// stage makes it. With Recompute::selective it is what an attention core makes, with full all that
/// a block makes.
struct Recomputed {
  std::shared_ptr<AttentionLayer::CoreResult> core;
  std::optional<TransformerBlock::State> block;
};

/// A language model or a part of it: embedding, blocks, final norm, logits and loss. Tensors are
/// named as the whole model's ("block3/..."). A State holds one micro-batch in flight.
class Stage {
 public:
  struct State {
    std::optional<VocabParallelEmbedding::State> embedding;
    std::vector<TransformerBlock::State> blocks;  ///< none with Recompute::full, but:
    Tensor x;                                     ///< of the first block
    std::vector<Buffer> y;                        ///< of each block
    std::optional<NormLayer::State> final_norm;
    std::optional<VocabParallelHead::State> head;
  };
  /// `recomputed` is of all stages of the rank; none: config.recompute is not looked at.
  Stage(Rank& rank, const LayerConfig& config, const StageRange& range, TokenScratch& scratch,
        Recomputed* recomputed = nullptr);
  [[nodiscard]] State make_state(Rank& rank) const;
  /// x_TD is looked at unless the stage has the embedding. Returns y_TD, or with the head the loss
  /// of every token. x_TD stays until the input part of backward ran.
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  /// dy_TD is looked at unless the stage has the head, and stays until the weight part ran. Returns
  /// dx_TD, in `dx` if given, or with the embedding nothing. Without `dx` it lies in the state,
  /// with Recompute::full where the next backward on this rank writes. With recomputation
  /// Part::both only.
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part,
                  const Tensor& dx = {}) const;
  /// See TransformerBlock::sum_gradients.
  void sum_gradients(Rank& rank) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  [[nodiscard]] bool recomputes_blocks() const { return recomputed_ && recomputed_->block; }
  Tensor backward_of_recomputed(Rank& rank, State& state, std::size_t block, const Tensor& dy,
                                const Tensor& dx) const;

  Recomputed* recomputed_;
  std::optional<VocabParallelEmbedding> embedding_;
  std::vector<TransformerBlock> blocks_;
  std::optional<NormLayer> final_norm_;
  std::optional<VocabParallelHead> head_;
};

}  // namespace shardmark
