// What a pipeline keeps in memory between forward and backward, by formula.

#include "layers/pipeline/rank_plan.hpp"
#include "tests/pipeline/programs.hpp"

#include <gtest/gtest.h>

namespace shardmark {
namespace {

using test::Lowering;
using test::pipeline_case;
using test::PipelineCase;
using test::ScheduleKind;

/// Bytes of a block of `c` on one rank.
struct BlockBytes {
  std::int64_t y;           ///< its result, and as much its input's gradient
  std::int64_t core;        ///< what the attention core makes: o and log-sum-exps
  std::int64_t activation;  ///< all that its forward makes
  std::int64_t gradient;    ///< all that its backward makes, without those of weights
};
/// By the formulas of layers/README.md, for a layer norm, GeLU and f32.
BlockBytes bytes_of_block(const PipelineCase& c) {
  const ModelShape& shape = c.config.shape;
  const std::int64_t tokens = shape.tokens(), tp = c.config.parallel.tp.size, e = 4;
  const std::int64_t q = shape.query_width() / tp, kv = shape.kv_width() / tp, f = shape.ffn / tp;
  const std::int64_t each = (6 * shape.hidden + 2 * q + 2 * kv + 2 * f) * e;
  const std::int64_t lse = 4 * shape.heads / tp, stats = 2 * 8;
  return {tokens * shape.hidden * e, tokens * (q * e + lse), tokens * (each + lse + stats),
          tokens * each};
}

TEST(PipelineRecompute, SavesTheBytesOfTheFormula) {
  const auto peak = [](const LayerConfig& config) {
    return memory_timeline(record_program(config, Phase::step, 1).memory).peak;
  };
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved})
    for (const int ranks : {1, 2, 3})
      for (const int tp : {1, 2}) {
        PipelineCase c = pipeline_case(kind, {.ranks = ranks, .micro = 6}, Lowering::split, tp);
        c.config.pipeline.blocks.front() = 3;
        set_blocks(c, c.config.pipeline.blocks);
        const BlockBytes block = bytes_of_block(c);
        for (int rank = 0; rank < c.ranks(); ++rank) {
          LayerConfig config = c.on(rank);
          const auto plan = pipeline::plan_rank(c.schedule(), config.parallel.pp.position);
          std::int64_t states = 0, blocks = 0;  // of all stages and micro-batches in flight
          for (const int stage : c.schedule().stages_of(config.parallel.pp.position)) {
            const auto s = static_cast<std::size_t>(stage);
            states += plan.num_buffers[s].state;
            blocks += plan.num_buffers[s].state * c.config.pipeline.blocks[s];
          }
          const MemoryPoint none = peak(config);
          const auto saved = [&](Recompute recompute, Category category) {
            config.recompute = recompute;
            return none[category] - peak(config)[category];
          };
          const auto where = message(describe(c), " rank ", rank);
          EXPECT_EQ(saved(Recompute::selective, Category::activation), (blocks - 1) * block.core)
              << where;
          EXPECT_EQ(saved(Recompute::selective, Category::gradient), 0) << where;
          EXPECT_EQ(saved(Recompute::full, Category::activation),
                    blocks * (block.activation - block.y) - block.activation)
              << where;
          EXPECT_EQ(saved(Recompute::full, Category::gradient),
                    (blocks - 1) * block.gradient - states * block.y)
              << where;
        }
      }
}

}  // namespace
}  // namespace shardmark
