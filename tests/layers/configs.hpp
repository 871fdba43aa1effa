#pragma once

// Small configurations that cover every way a block can be split, for tests on recorded op lists.

#include "core/error.hpp"
#include "layers/recording.hpp"

#include <ostream>
#include <string>
#include <vector>

namespace shardmark::test {

/// A configuration and the number of ranks it runs on.
struct Split {
  LayerConfig config;
  int tp;

  [[nodiscard]] int ranks() const { return tp; }
  [[nodiscard]] Mesh mesh() const { return Mesh{{.tp = tp}}; }
  [[nodiscard]] LayerConfig on(int rank) const {
    LayerConfig layer = config;
    layer.parallel.tp = Group{Axis::tp, 0, 1, tp, rank};
    return layer;
  }
};

inline std::string describe(const Split& split) {
  const Parallel& parallel = split.config.parallel;
  return message(name_of(split.config.block), "_tp", split.tp,
                 parallel.sequence_parallel ? "_sp" : "", parallel.overlap ? "_overlap" : "",
                 parallel.keep_gathered ? "_keep" : "", "_kv", split.config.shape.kv_heads, '_',
                 name_of(split.config.shape.mlp));
}
inline std::ostream& operator<<(std::ostream& out, const Split& split) {
  return out << describe(split);
}

/// 12 heads and 48 tokens split evenly over 1, 2, 3 and 4 ranks, and into chunks.
inline ModelShape small_shape(int tp) {
  ModelShape shape;
  shape.heads = 12;
  shape.kv_heads = 12;
  shape.head_dim = 8;
  shape.hidden = 96;
  shape.ffn = 192;
  shape.vocab = 24 * tp;
  shape.layers = 2;
  shape.seq = 48;
  shape.batch = 2;
  return shape;
}

inline const std::vector<BlockKind>& all_blocks() {
  static const std::vector<BlockKind> blocks{BlockKind::linear_column, BlockKind::linear_row,
                                             BlockKind::mlp,           BlockKind::attention,
                                             BlockKind::block,         BlockKind::model};
  return blocks;
}

/// Every block over 2, 3 and 4 ranks with and without sequence parallelism, overlap and kept
/// inputs; grouped KV heads and gated MLP with learned positions on top.
inline std::vector<Split> all_splits() {
  std::vector<Split> splits;
  for (const BlockKind block : all_blocks())
    for (const int tp : {2, 3, 4})
      for (const bool sp : {false, true})
        for (const bool overlap : {false, true})
          for (const bool keep : {false, true}) {
            if (keep && !sp) continue;
            Split split{{}, tp};
            split.config.block = block;
            split.config.shape = small_shape(tp);
            split.config.gather_output = !sp;
            split.config.parallel.sequence_parallel = sp;
            split.config.parallel.overlap = overlap;
            split.config.parallel.chunks = overlap ? 4 : 1;
            split.config.parallel.keep_gathered = keep;
            splits.push_back(split);
            if (block == BlockKind::linear_column || block == BlockKind::linear_row) continue;
            split.config.shape.kv_heads = tp == 4 ? 2 : 1;
            split.config.shape.mlp = MlpKind::swiglu;
            split.config.shape.norm = NormKind::rms;
            split.config.shape.positions = Positions::learned;
            splits.push_back(split);
          }
  return splits;
}

}  // namespace shardmark::test
