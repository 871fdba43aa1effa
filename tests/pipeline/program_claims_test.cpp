// What a pipeline's ranks allocate, against what its schedule says they hold.

#include "core/record/memory.hpp"
#include "layers/pipeline/rank_plan.hpp"
#include "layers/pipeline_memory.hpp"
#include "tests/pipeline/programs.hpp"

#include <gtest/gtest.h>

namespace shardmark {
namespace {

using test::Lowering;
using test::pipeline_case;
using test::PipelineCase;
using test::ScheduleKind;

std::int64_t allocated_activations(const LayerConfig& layer) {
  return memory_timeline(record_program(layer, Phase::step, 1).memory).peak[Category::activation];
}

TEST(PipelineClaims, IsTheClaimAndWhatLiesBetweenStages) {
  for (const PipelineCase& c : test::all_schedules({1, 2, 3, 4}, {4, 8}))
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const LayerConfig layer = c.on(rank);
      const std::int64_t allocated = allocated_activations(layer);
      const std::int64_t claim = claimed_activation_bytes(layer);
      EXPECT_GT(claim, 0) << c << " rank " << rank;
      const pipeline::Schedule& schedule = c.schedule();
      const std::vector<int> stages = schedule.stages_of(rank);
      if (stages.size() > 1) {  // which need not peak together
        EXPECT_GE(allocated, claim) << c << " rank " << rank;
        continue;
      }
      const int stage = stages.front();
      const pipeline::RankPlan plan = pipeline::plan_rank(schedule, rank);
      const std::int64_t per_token = 4 * layer.tokens();  // bytes
      std::int64_t between =
          plan.num_buffers[static_cast<std::size_t>(stage)].x * layer.shape.hidden * per_token;
      if (stage == 0) between += schedule.num_micro * per_token;  // ids
      if (stage + 1 == schedule.num_stages) between += schedule.num_micro * 2 * per_token;
      EXPECT_EQ(allocated, claim + between) << c << " rank " << rank;
    }
}

TEST(PipelineClaims, ClaimsAsManyStatesAsAreInFlight) {
  const auto claim = [](ScheduleKind kind, int rank) {
    return claimed_activation_bytes(pipeline_case(kind, {.ranks = 3, .micro = 8}).on(rank));
  };
  for (int rank = 0; rank < 3; ++rank) {
    const std::int64_t one = claim(ScheduleKind::gpipe, rank) / 8;
    EXPECT_EQ(claim(ScheduleKind::gpipe, rank), 8 * one) << "rank " << rank;
    EXPECT_EQ(claim(ScheduleKind::one_f_one_b, rank), (3 - rank) * one) << "rank " << rank;
    EXPECT_EQ(claim(ScheduleKind::zb_h1, rank), 3 * one) << "rank " << rank;
  }
}

TEST(PipelineClaims, TensorParallelismSplitsTheClaim) {
  const PipelineCase c =
      pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4}, Lowering::split, 2);
  const PipelineCase whole = pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4});
  EXPECT_EQ(claimed_activation_bytes(c.on(2)), claimed_activation_bytes(c.on(3)));
  EXPECT_LT(claimed_activation_bytes(c.on(2)), claimed_activation_bytes(whole.on(1)));
}

TEST(PipelineClaims, ABlockClaimsNothing) { EXPECT_EQ(claimed_activation_bytes({}), 0); }

}  // namespace
}  // namespace shardmark
