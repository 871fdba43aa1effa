#include "layers/model.hpp"

#include "core/error.hpp"

namespace shardmark {

Model::Model(Rank& rank, const LayerConfig& config, TokenScratch& scratch)
    : embedding_{rank, config, scratch},
      final_norm_{rank, norm_config(config, "final_norm")},
      head_{rank, config, scratch} {
  for (std::int64_t layer = 0; layer < config.shape.layers; ++layer)
    blocks_.emplace_back(rank, config, message("block", layer), scratch);
}

Model::State Model::make_state(Rank& rank) const {
  State state;
  state.embedding = embedding_.make_state(rank);
  for (const TransformerBlock& block : blocks_) state.blocks.push_back(block.make_state(rank));
  state.final_norm = final_norm_.make_state(rank);
  state.head = head_.make_state(rank);
  return state;
}

Tensor Model::forward(Rank& rank, State& state) const {
  Tensor x = embedding_.forward(rank, state.embedding);
  for (std::size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].forward(rank, state.blocks[i], x);
  return head_.forward(rank, state.head, final_norm_.forward(rank, state.final_norm, x));
}

void Model::backward(Rank& rank, State& state, Part part) const {
  Tensor dx = head_.backward(rank, state.head, part);
  dx = final_norm_.backward(rank, state.final_norm, dx, part);
  for (std::size_t i = blocks_.size(); i-- > 0;)
    dx = blocks_[i].backward(rank, state.blocks[i], dx, part);
  embedding_.backward(rank, state.embedding, dx, part);
}

void Model::list_weights(NamedTensors& into) const {
  embedding_.list_weights(into);
  for (const TransformerBlock& block : blocks_) block.list_weights(into);
  final_norm_.list_weights(into);
  head_.list_weights(into);
}

void Model::list_state(const State& state, NamedTensors& into) const {
  embedding_.list_state(state.embedding, into);
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].list_state(state.blocks[i], into);
  final_norm_.list_state(state.final_norm, into);
  head_.list_state(state.head, into);
}

}  // namespace shardmark
