#include "layers/stage.hpp"

#include "core/error.hpp"

#include <numeric>

namespace shardmark {

StageRange stage_range(const LayerConfig& config, int stage) {
  const std::vector<std::int64_t>& blocks = config.pipeline.blocks;
  const std::int64_t first =
      std::accumulate(blocks.begin(), blocks.begin() + stage, std::int64_t{0});
  const auto s = static_cast<std::size_t>(stage);
  return {first, first + blocks[s], stage == 0, s + 1 == blocks.size()};
}

StageRange whole_model(const LayerConfig& config) { return {0, config.shape.layers, true, true}; }

Stage::Stage(Rank& rank, const LayerConfig& config, const StageRange& range, TokenScratch& scratch,
             Recomputed* recomputed)
    : recomputed_{recomputed} {
  if (range.has_embedding) embedding_.emplace(rank, config, scratch);
  if (range.has_head) {
    final_norm_.emplace(rank, norm_config(config, "final_norm"));
    head_.emplace(rank, config, scratch);
  }
  for (std::int64_t block = range.first_block; block < range.last_block; ++block)
    blocks_.emplace_back(rank, config, message("block", block), scratch);
  if (recomputed_ == nullptr) return;
  if (config.recompute == Recompute::selective && !recomputed_->core)
    recomputed_->core = blocks_.front().make_core_result(rank);
  if (config.recompute == Recompute::full && !recomputed_->block)
    recomputed_->block = blocks_.front().make_state(rank);
}

Stage::State Stage::make_state(Rank& rank) const {
  State state;
  if (embedding_) state.embedding = embedding_->make_state(rank);
  if (recomputes_blocks()) {
    const Tensor& one = recomputed_->block->y.tensor();
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      state.y.push_back(rank.allocate(one.shape, one.dtype, Category::activation));
  } else {
    for (const TransformerBlock& block : blocks_)
      state.blocks.push_back(block.make_state(rank, recomputed_ ? recomputed_->core : nullptr));
  }
  if (head_) {
    state.final_norm = final_norm_->make_state(rank);
    state.head = head_->make_state(rank);
  }
  return state;
}

Tensor Stage::forward(Rank& rank, State& state, const Tensor& x) const {
  Tensor y = embedding_ ? embedding_->forward(rank, *state.embedding) : x;
  state.x = y;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    y = recomputes_blocks() ? blocks_[i].forward(rank, *recomputed_->block, y, state.y[i].tensor())
                            : blocks_[i].forward(rank, state.blocks[i], y);
  if (!head_) return y;
  return head_->forward(rank, *state.head, final_norm_->forward(rank, *state.final_norm, y));
}

Tensor Stage::backward_of_recomputed(Rank& rank, State& state, std::size_t block, const Tensor& dy,
                                     const Tensor& dx) const {
  {
    const auto scope = rank.scope("recompute");
    (void)blocks_[block].forward(rank, *recomputed_->block,
                                 block == 0 ? state.x : state.y[block - 1].tensor());
  }
  return blocks_[block].backward(rank, *recomputed_->block, dy, Part::both, dx);
}

Tensor Stage::backward(Rank& rank, State& state, const Tensor& dy, Part part,
                       const Tensor& dx) const {
  SHARDMARK_CHECK(!recomputes_blocks() || part == Part::both,
                  "recomputed blocks would be gone before Part::weight");
  Tensor gradient = dy;
  if (head_)
    gradient = final_norm_->backward(rank, *state.final_norm,
                                     head_->backward(rank, *state.head, part), part);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const Tensor result = i == 0 ? dx : Tensor{};
    gradient = recomputes_blocks()
                   ? backward_of_recomputed(rank, state, i, gradient, result)
                   : blocks_[i].backward(rank, state.blocks[i], gradient, part, result);
  }
  if (!embedding_) return gradient;
  embedding_->backward(rank, *state.embedding, gradient, part);
  return {};
}

void Stage::sum_gradients(Rank& rank) const {
  if (embedding_) embedding_->sum_gradients(rank);
  for (const TransformerBlock& block : blocks_) block.sum_gradients(rank);
  if (final_norm_) final_norm_->sum_gradients(rank);
}

void Stage::list_weights(NamedTensors& into) const {
  if (embedding_) embedding_->list_weights(into);
  for (const TransformerBlock& block : blocks_) block.list_weights(into);
  if (!head_) return;
  final_norm_->list_weights(into);
  head_->list_weights(into);
}

void Stage::list_state(const State& state, NamedTensors& into) const {
  if (embedding_) embedding_->list_state(*state.embedding, into);
  for (std::size_t i = 0; i < state.blocks.size(); ++i)
    blocks_[i].list_state(state.blocks[i], into);
  if (!head_) return;
  final_norm_->list_state(*state.final_norm, into);
  head_->list_state(*state.head, into);
}

}  // namespace shardmark
