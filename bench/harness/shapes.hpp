#pragma once

#include "bench/harness/options.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// One element of each list of shapes; 0 where the option was not given.
struct ShapeChoice {
  std::string model;
  BlockKind block{BlockKind::block};
  DType dtype{DType::f32};
  Phase phase{Phase::step};
  std::int64_t hidden{0}, heads{0}, kv_heads{0}, ffn{0}, vocab{0}, layers{0}, seq{0}, batch{0};
};

/// All combinations, the last of (model, block, dtype, hidden, heads, ..., seq, batch, phase)
/// varying fastest.
[[nodiscard]] std::vector<ShapeChoice> shape_choices(const Options& options);

/// The shape that `choice` means at degree `tp`: the model's or the default's values, replaced by
/// what was given.
[[nodiscard]] ModelShape shape_of(const Options& options, const ShapeChoice& choice, int tp);
/// Throws InputError when the block has attention and the heads do not divide the hidden width.
void check_heads(const ShapeChoice& choice, const ModelShape& shape);
/// The vocabulary before padding.
[[nodiscard]] std::int64_t unpadded_vocab(const Options& options, const ShapeChoice& choice);

/// Throws InputError when a tensor of `config` would have so many elements that no machine holds
/// it; below that limit byte counts cannot overflow.
void check_magnitude(const LayerConfig& config);

}  // namespace shardmark::bench
