#pragma once

#include "layers/block.hpp"
#include "layers/embedding.hpp"

#include <vector>

namespace shardmark {

/// A language model: embedding, `layers` blocks, final norm, logits and loss.
class Model {
 public:
  struct State {
    VocabParallelEmbedding::State embedding;
    std::vector<TransformerBlock::State> blocks;
    NormLayer::State final_norm;
    VocabParallelHead::State head;
  };
  Model(Rank& rank, const LayerConfig& config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;
  /// Returns the loss of every token.
  Tensor forward(Rank& rank, State& state) const;
  void backward(Rank& rank, State& state, Part part) const;
  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  VocabParallelEmbedding embedding_;
  std::vector<TransformerBlock> blocks_;
  NormLayer final_norm_;
  VocabParallelHead head_;
};

}  // namespace shardmark
