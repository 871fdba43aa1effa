#pragma once

#include "layers/shape.hpp"

#include <cstdint>

namespace shardmark {

/// Activations that the schedule says a rank holds at most, bytes: of every stage and micro-batch
/// between its forward and its W or B the Stage::State. What a program allocates is more by what is
/// still being sent, by the tensors between stages, by the ids, targets and losses of all
/// micro-batches and by one buffer of what is recomputed; and a rank with several stages has states
/// for the most of each, not of all. `config.parallel` says which rank it is. 0 without a pipeline,
/// and for inference, which holds nothing for a backward.
[[nodiscard]] std::int64_t claimed_activation_bytes(const LayerConfig& config);

}  // namespace shardmark
