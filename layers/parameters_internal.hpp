#pragma once

#include "layers/stage.hpp"

namespace shardmark {

// Elements of a model's weights by formula: what the closed forms of volume.hpp are made of.

[[nodiscard]] inline double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Vectors of the hidden width that a norm has.
[[nodiscard]] double num_norm_vectors(const ModelShape& shape);
/// Transformer blocks of a model; 1 of a block or a part of it.
[[nodiscard]] double num_blocks(const LayerConfig& config);
/// Of all weight matrices, over all ranks.
[[nodiscard]] double matrix_elements(const LayerConfig& config);
/// Of all weights of one rank whose gradients are summed over cp or dp; not for a model.
[[nodiscard]] double rank_parameters(const LayerConfig& config);
/// The same of a stage of a pipeline.
[[nodiscard]] double stage_parameters(LayerConfig config, const StageRange& range);

}  // namespace shardmark
