#pragma once

#include "layers/linear.hpp"
#include "layers/shape.hpp"

namespace shardmark {

/// Token embedding with the table split by rows of the vocabulary V: each rank looks up the ids it
/// owns, writes zeros for the others, and the ranks' results are summed (all-reduce, or
/// reduce-scatter under SP). Learned positions, where the model has them, are added once after the
/// sum. Backward scatters dy into the rank's own rows (SP: all-gather of dy first).
class VocabParallelEmbedding {
 public:
  struct State {
    Buffer ids, position_ids, y;
    Tensor dy;
  };
  VocabParallelEmbedding(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;
  Tensor forward(Rank& rank, State& state) const;
  void backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  /// Sums the gradients of learned positions under SP. Part of backward, but with
  /// accumulate_gradients the caller's business, once, behind the last micro-batch.
  void sum_gradients(Rank& rank) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  LayerConfig config_;
  TokenScratch* scratch_;
  std::int64_t rows_;  ///< of the table on this rank
  Buffer table_, dtable_, positions_, dpositions_;
};

/// Logits and loss with the vocabulary split over the ranks: a column-parallel linear whose logits
/// stay split, then softmax cross-entropy from per-token maxima (all-reduce max, 4 bytes a token)
/// and sums (all-reduce sum, 8 bytes a token), as in Megatron-LM. The loss of the whole batch is
/// the mean over tokens; its gradient starts the backward pass.
///
/// With tied embeddings the matrix is held as the table is, a row per token of the vocabulary, and
/// its first values are the table's. Whoever has both sums their gradients.
class VocabParallelHead {
 public:
  struct State {
    ColumnParallelLinear::State logits;
    Buffer targets, maximum, partials, loss, dlogits;
  };
  VocabParallelHead(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;
  /// Returns the loss of every token.
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  Tensor backward(Rank& rank, State& state, Part part) const;
  /// Inference: returns the largest logit of every token, over all ranks. Targets are not used.
  Tensor largest_logit(Rank& rank, State& state, const Tensor& x) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  /// Of this rank; their maxima over all ranks go to the state.
  Tensor logits(Rank& rank, State& state, const Tensor& x) const;
  void reduce(Rank& rank, const Tensor& tensor, Reduction reduction) const;

  LayerConfig config_;
  std::int64_t columns_;
  ColumnParallelLinear linear_;
};

}  // namespace shardmark
