// What a pipeline keeps in memory between forward and backward, by formula.

#include "layers/pipeline/rank_plan.hpp"
#include "tests/pipeline/programs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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
          std::int64_t blocks = 0, blocks_in_flight = 0;  // of all stages; times micro-batches
          for (const int stage : c.schedule().stages_of(config.parallel.pp.position)) {
            const auto s = static_cast<std::size_t>(stage);
            blocks += c.config.pipeline.blocks[s];
            blocks_in_flight += plan.num_buffers[s].state * c.config.pipeline.blocks[s];
          }
          const MemoryPoint none = peak(config);
          const auto saved = [&](Recompute recompute, Category category) {
            config.recompute = recompute;
            return none[category] - peak(config)[category];
          };
          const auto where = message(describe(c), " rank ", rank);
          EXPECT_EQ(saved(Recompute::selective, Category::activation),
                    (blocks_in_flight - 1) * block.core)
              << where;
          EXPECT_EQ(saved(Recompute::selective, Category::gradient), 0) << where;
          EXPECT_EQ(saved(Recompute::full, Category::activation),
                    blocks_in_flight * (block.activation - block.y) - block.activation)
              << where;
          EXPECT_EQ(saved(Recompute::full, Category::gradient), (blocks - 1) * block.gradient)
              << where;
        }
      }
}

/// What lies between layers in backward is there once per stage if that is one piece, and per
/// micro-batch in flight if weight gradients come later.
TEST(PipelineGradients, AreUsedInTurnsWhereBackwardIsOnePiece) {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
        ScheduleKind::dualpipe, ScheduleKind::zb_h1})
    for (const int ranks : {2, 3, 4}) {
      if (kind == ScheduleKind::dualpipe && ranks == 3) continue;
      const PipelineCase c = pipeline_case(kind, {.ranks = ranks, .micro = 12});
      const BlockBytes block = bytes_of_block(c);
      for (int rank = 0; rank < ranks; ++rank) {
        const LayerConfig config = c.on(rank);
        const auto plan = pipeline::plan_rank(c.schedule(), rank);
        const bool in_turns = std::ranges::none_of(plan.instructions, [](const auto& instruction) {
          return instruction.step.action.act == pipeline::Act::W;
        });
        EXPECT_EQ(in_turns, kind != ScheduleKind::zb_h1 && kind != ScheduleKind::dualpipe)
            << describe(c) << " rank " << rank;
        std::int64_t expected = 0;
        const int last = c.schedule().num_stages - 1;
        for (const int stage : c.schedule().stages_of(rank)) {
          const pipeline::Held& num = plan.num_buffers[static_cast<std::size_t>(stage)];
          const std::int64_t sets = in_turns ? 1 : num.state;
          expected += num.dy * block.y + sets * block.gradient;
          if (in_turns && stage > 0) expected += num.state * block.y;
          if (stage == last)  // dx of logits and final norm, and the logits' gradient
            expected += sets * (2 * block.y + 4 * config.shape.tokens() * config.shape.vocab);
        }
        const Recording recording = record_program(config, Phase::step, 1);
        for (const NamedTensor& named : recording.program->tensors())
          if (named.role == Role::gradient) expected += named.tensor.bytes();
        EXPECT_EQ(memory_timeline(recording.memory).peak[Category::gradient], expected)
            << describe(c) << " rank " << rank;
      }
    }
}

}  // namespace
}  // namespace shardmark
