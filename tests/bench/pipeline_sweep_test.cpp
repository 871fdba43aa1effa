#include "bench/harness/dry_run.hpp"
#include "bench/pipeline/schedules.hpp"
#include "bench/pipeline/sweep.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/pipeline/validate.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::pp {
namespace {

using pipeline::Lowering;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

Sweep sweep_of(const std::vector<std::string>& arguments, int world_size,
               const MeasuredTimes& times = {}) {
  return expand(parse_options(arguments), world_size, true, times);
}

std::string problem_of(const std::vector<std::string>& arguments, int world_size) {
  return test::refusal([&] { return sweep_of(arguments, world_size); });
}

std::vector<std::string> rows_of(const Sweep& sweep) {
  std::vector<std::string> list;
  for (const Case& config : sweep.cases)
    list.push_back(message(describe_pipeline(config), config.skip_reason.empty() ? "" : " -"));
  return list;
}

TEST(PipelineSweep, HeadsThatDoNotFitNameWhatWorksOnce) {
  EXPECT_THAT(problem_of({"--hidden", "100"}, 1), HasSubstr("try hidden 128, or give --heads"));
  EXPECT_THAT(problem_of({"--hidden", "200"}, 1), HasSubstr("try hidden 128 or 256, or give"));
  EXPECT_THAT(problem_of({"--heads", "4", "--kv-heads", "3"}, 1), EndsWith("try kv_heads 2 or 4"));
  EXPECT_THAT(problem_of({"--hidden", "384", "--heads", "12", "--kv-heads", "5", "--tp", "4"}, 4),
              EndsWith("try kv_heads 4 or 12"))
      << "6 does not go with tp 4";
}

TEST(PipelineSweep, ACaseHasAllThatAPipelineNeeds) {
  const Sweep sweep = sweep_of({"--schedule", "interleaved", "--pp", "3", "--microbatches", "6",
                                "--layers", "7", "--tp", "2", "--dp", "2"},
                               12);
  ASSERT_EQ(sweep.cases.size(), 1U);
  const LayerConfig& layer = sweep.cases.front().layer;
  EXPECT_EQ(layer.block, BlockKind::model);
  EXPECT_EQ(sweep.cases.front().phase, Phase::step);
  EXPECT_EQ(layer.recompute, Recompute::none);
  EXPECT_FALSE(layer.tied_embeddings);
  EXPECT_EQ(layer.parallel.num_ranks(), 12);
  EXPECT_EQ(layer.parallel.pp.stride, 2);
  EXPECT_EQ(layer.parallel.dp.stride, 6);
  EXPECT_EQ(layer.pipeline.schedule_name, "interleaved");
  EXPECT_EQ(layer.pipeline.chunks, 2);
  EXPECT_EQ(layer.pipeline.micro, 6);
  EXPECT_THAT(layer.pipeline.blocks, ElementsAre(2, 1, 1, 1, 1, 1));
  ASSERT_TRUE(layer.is_pipeline());
  EXPECT_EQ(layer.pipeline.schedule->lowering, Lowering::split);
  EXPECT_EQ(layer.pipeline.schedule->num_ranks(), 3);
  EXPECT_THAT(sweep.notices, Contains("7 layers in 6 stages are uneven: 2+1+1+1+1+1 blocks"));
}

const std::vector<std::string> acceptance{
    "--schedule",     "gpipe,1f1b,interleaved,zb-h1,zb-h2,zb-v,dualpipe,dualpipe-v",
    "--chunks",       "2",
    "--microbatches", "4,8",
    "--hidden",       "256",
    "--seq",          "128"};

TEST(PipelineSweep, AllSchedulesRunOnTwoRanks) {
  std::vector<std::string> arguments = acceptance;
  arguments.insert(arguments.end(), {"--pp", "2", "--layers", "8"});
  const Sweep sweep = sweep_of(arguments, 2);
  EXPECT_THAT(rows_of(sweep),
              ElementsAre("gpipe pp 2 m 4", "1f1b pp 2 m 4", "interleaved pp 2 x 2 chunks m 4",
                          "zb-h1 pp 2 m 4", "zb-h2 pp 2 m 4", "zb-v pp 2 x 2 chunks m 4",
                          "dualpipe pp 2 m 4", "dualpipe-v pp 2 x 2 chunks m 4", "gpipe pp 2 m 8",
                          "1f1b pp 2 m 8", "interleaved pp 2 x 2 chunks m 8", "zb-h1 pp 2 m 8",
                          "zb-h2 pp 2 m 8", "zb-v pp 2 x 2 chunks m 8", "dualpipe pp 2 m 8",
                          "dualpipe-v pp 2 x 2 chunks m 8"));
  for (const Case& made : sweep.cases)
    EXPECT_THAT(pipeline::validate(*made.layer.pipeline.schedule), IsEmpty());
}

TEST(PipelineSweep, WhatAScheduleDoesNotAllowIsSkippedWithTheRule) {
  std::vector<std::string> arguments = acceptance;
  arguments.insert(arguments.end(), {"--layers", "24"});
  const Sweep sweep = sweep_of(arguments, 3);
  EXPECT_THAT(rows_of(sweep),
              ElementsAre("gpipe pp 3 m 4", "1f1b pp 3 m 4", "interleaved pp 3 x 2 chunks m 4 -",
                          "zb-h1 pp 3 m 4", "zb-h2 pp 3 m 4", "zb-v pp 3 x 2 chunks m 4",
                          "dualpipe pp 3 m 4 -", "dualpipe-v pp 3 x 2 chunks m 4 -",
                          "gpipe pp 3 m 8", "1f1b pp 3 m 8", "interleaved pp 3 x 2 chunks m 8 -",
                          "zb-h1 pp 3 m 8", "zb-h2 pp 3 m 8", "zb-v pp 3 x 2 chunks m 8",
                          "dualpipe pp 3 m 8 -", "dualpipe-v pp 3 x 2 chunks m 8"));
  EXPECT_THAT(sweep.cases[2].skip_reason, HasSubstr("leave 1, and the last group needs"));
  EXPECT_THAT(sweep.cases[6].skip_reason, HasSubstr("the number must be even: 4 would work"));
  EXPECT_THAT(sweep.cases[7].skip_reason, HasSubstr("at least 2 per rank: 6 or more"));
  for (const Case& made : sweep.cases)
    EXPECT_EQ(made.layer.is_pipeline(), made.skip_reason.empty()) << describe(made);
}

TEST(PipelineSweep, WhatMeansNothingIsOneRow) {
  EXPECT_THAT(
      rows_of(sweep_of({"--schedule", "1f1b,interleaved,zb-v", "--chunks", "4,2", "--layers", "16"},
                       2)),
      ElementsAre("1f1b pp 2 m 8", "interleaved pp 2 x 4 chunks m 8", "zb-v pp 2 x 4 chunks m 8 -",
                  "interleaved pp 2 x 2 chunks m 8", "zb-v pp 2 x 2 chunks m 8"));
  EXPECT_THAT(rows_of(sweep_of({"--pp", "1,2", "--p2p", "split,merged"}, 2)),
              ElementsAre("1f1b pp 1 m 8", "1f1b pp 2 m 8", "1f1b pp 2 m 8 merged"));
}

TEST(PipelineSweep, RecomputationIsForSchedulesWithWholeBackwards) {
  const Sweep sweep = sweep_of({"--schedule", "1f1b,zb-h1,dualpipe-v", "--recompute",
                                "none,selective,full", "--tie-embeddings", "on"},
                               3);
  EXPECT_THAT(
      rows_of(sweep),
      ElementsAre("1f1b pp 3 m 8 tied", "1f1b pp 3 m 8 recompute selective tied",
                  "1f1b pp 3 m 8 recompute full tied", "zb-h1 pp 3 m 8 tied",
                  "zb-h1 pp 3 m 8 recompute selective tied -",
                  "zb-h1 pp 3 m 8 recompute full tied -", "dualpipe-v pp 3 x 2 chunks m 8 tied",
                  "dualpipe-v pp 3 x 2 chunks m 8 recompute selective tied -",
                  "dualpipe-v pp 3 x 2 chunks m 8 recompute full tied -"));
  EXPECT_THAT(sweep.cases[4].skip_reason,
              HasSubstr("recompute selective: zb-h1 has weight gradients apart (0W"));
  EXPECT_THAT(sweep.cases[8].skip_reason,
              HasSubstr("try recompute none, or gpipe, 1f1b or interleaved"));
  for (const Case& made : sweep.cases) {
    EXPECT_EQ(made.layer.is_pipeline(), made.skip_reason.empty()) << describe(made);
    EXPECT_TRUE(made.layer.tied_embeddings);
  }
  EXPECT_NE(cost_key(sweep.cases[0]), cost_key(sweep.cases[2]));
}

TEST(PipelineSweep, SequenceParallelismNeedsTensorParallelism) {
  const Sweep sweep = sweep_of({"--tp", "1,3", "--pp", "2", "--sequence-parallel", "off,on",
                                "--hidden", "384", "--seq", "96", "--vocab", "96"},
                               6);
  std::vector<std::string> rows;
  for (const Case& made : sweep.cases) rows.push_back(describe_split(made.layer.parallel));
  EXPECT_THAT(rows, ElementsAre("tp 1", "tp 3", "tp 3 sp"));
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("tp 1 splits no tokens")));
  EXPECT_THAT(problem_of({"--tp", "3", "--pp", "2", "--sequence-parallel", "on", "--hidden", "384",
                          "--seq", "100", "--vocab", "96"},
                         6),
              HasSubstr("seq 100 is not divisible by tp 3"));
}

TEST(PipelineSweep, MessagesAreLoweredAsAsked) {
  const Sweep sweep = sweep_of({"--p2p", "merged,split"}, 3);
  ASSERT_EQ(sweep.cases.size(), 2U);
  EXPECT_EQ(sweep.cases[0].layer.pipeline.schedule->lowering, Lowering::merged);
  EXPECT_EQ(sweep.cases[1].layer.pipeline.schedule->lowering, Lowering::split);
}

TEST(PipelineSweep, EveryRuleNamesValueAndWayOut) {
  const auto expect = [](const std::vector<std::string>& arguments, int world_size,
                         const std::string& text) {
    EXPECT_THAT(problem_of(arguments, world_size), HasSubstr(text))
        << testing::PrintToString(arguments);
  };
  expect({"--pp", "4"}, 2, "pp 4 x tp 1 x dp 1 needs 4 ranks, but there are 2");
  expect({"--tp", "2", "--dp", "2"}, 3, "pp 1 x tp 2 x dp 2 needs 4 ranks");
  expect({"--layers", "2"}, 3, "2 layers for 3 stages; every stage needs one: at least 3");
  expect({"--schedule", "zb-v", "--layers", "5"}, 3, "5 layers for 6 stages");
  expect({"--schedule", "dualpipe"}, 3, "4 would work, and dualpipe-v takes any");
  expect({"--schedule", "dualpipe", "--microbatches", "6"}, 4, "8 or more");
  expect({"--schedule", "interleaved", "--microbatches", "2"}, 3, "3 or more");
  expect({"--schedule", "interleaved", "--chunks", "1"}, 2, "--chunks 2 or more");
  expect({"--schedule", "zb-v", "--chunks", "3"}, 2, "--chunks 2");
  expect({"--schedule", "zb-v", "--recompute", "full"}, 2,
         "recompute full: zb-v has weight gradients apart");
  expect({"--split", "4,4"}, 3, "split 4,4 is for 2 stages, and there are 3; try 3,3,2");
  expect({"--split", "4,5"}, 2, "split 4,5 adds up to 9, not to the 8 layers");
  expect({"--hidden", "1000"}, 2, "hidden 1000 is not a multiple of 128");
  expect({"--tp", "3", "--hidden", "512"}, 3, "is not divisible by tp 3");
  expect({"--hidden", "1m", "--seq", "2000m"}, 2, "make tensors of");
}

TEST(PipelineSweep, AGivenSplitIsForSchedulesWithAsManyStages) {
  const Sweep sweep = sweep_of({"--schedule", "1f1b,zb-v", "--split", "3,2,2,1"}, 2);
  EXPECT_THAT(rows_of(sweep), ElementsAre("1f1b pp 2 m 8 balance 3+2+2+1 -",
                                          "zb-v pp 2 x 2 chunks m 8 balance 3+2+2+1"));
  EXPECT_THAT(sweep.cases[1].layer.pipeline.blocks, ElementsAre(3, 2, 2, 1));
}

TEST(PipelineSweep, MeasuredCostsMoveBlocksAwayFromTheHead) {
  const std::vector<std::string> arguments{"--schedule", "1f1b,zb-v,dualpipe", "--layers",
                                           "12",         "--balance",          "count,measured"};
  const Sweep before = sweep_of(arguments, 2);
  const std::string key = cost_key(before.cases.front());
  const PartTimes parts{.block = {25, 50, 25}, .head = {100, 200, 100}};
  const pipeline::LayerCosts costs = parts.costs();
  const Sweep sweep = sweep_of(arguments, 2, {{key, parts}});
  EXPECT_THAT(rows_of(sweep),
              ElementsAre("1f1b pp 2 m 8", "1f1b pp 2 m 8 balance measured",
                          "zb-v pp 2 x 2 chunks m 8", "zb-v pp 2 x 2 chunks m 8 balance measured",
                          "dualpipe pp 2 m 8", "dualpipe pp 2 m 8 balance measured"));
  EXPECT_THAT(sweep.cases[0].layer.pipeline.blocks, ElementsAre(6, 6));
  EXPECT_THAT(sweep.cases[1].layer.pipeline.blocks, ElementsAre(8, 4));
  // The head is on rank 0, which holds the stages 0 and 3.
  EXPECT_THAT(sweep.cases[3].layer.pipeline.blocks, ElementsAre(2, 4, 4, 2));
  // Both ranks hold both stages: nothing to gain.
  EXPECT_THAT(sweep.cases[5].layer.pipeline.blocks, ElementsAre(6, 6));

  const Rebalanced change = rebalanced(sweep.cases[1], costs);
  EXPECT_EQ(change.slowest_by_count_us, 1000);
  EXPECT_EQ(change.slowest_by_cost_us, 800);
  EXPECT_NEAR(change.gain_pct(), 20, 1e-9);
  EXPECT_EQ(change.imbalance_by_count, 1.25);
  EXPECT_EQ(change.imbalance_by_cost, 1);
  EXPECT_THAT(to_text(change), HasSubstr("8+4 blocks instead of 6+6; slowest rank 0.80 instead of "
                                         "1.00 ms (20.0 % less)"));
  EXPECT_EQ(rebalanced(sweep.cases[5], costs).slowest_by_cost_us, 800);
}

TEST(PipelineSweep, ZeroBubbleSchedulesAreFittedToTimesUnderALimit) {
  const std::vector<std::string> arguments{"--schedule", "1f1b,zb-h1,zb-v", "--layers", "12",
                                           "--fit",      "--memory-limit",  "5"};
  const std::string key = cost_key(sweep_of(arguments, 3).cases.front());
  const PartTimes parts{
      .embedding = {1, 0, 2}, .block = {2, 3, 1}, .head = {4, 5, 6}, .message = 0.5};
  const Sweep sweep = sweep_of(arguments, 3, {{key, parts}});
  EXPECT_THAT(rows_of(sweep), ElementsAre("1f1b pp 3 m 8", "zb-h1-fit-max5 pp 3 m 8",
                                          "zb-v-fit-max5 pp 3 x 2 chunks m 8"));
  const pipeline::Durations durations = parts.durations(std::vector<std::int64_t>{4, 4, 4});
  EXPECT_EQ(durations.stages[0].forward, 9);
  EXPECT_EQ(durations.stages[1].backward_input, 12);
  EXPECT_EQ(durations.stages[2].backward_weight, 10);
  EXPECT_EQ(durations.communication, 0.5);
  const pipeline::Schedule& fitted = *sweep.cases[1].layer.pipeline.schedule;
  EXPECT_EQ(fitted,
            pipeline::lower(pipeline::fit(pipeline::ScheduleKind::zb_h1, {3, 8}, durations, 5),
                            Lowering::split));
  for (const Case& made : sweep.cases) {
    const pipeline::Schedule& schedule = *made.layer.pipeline.schedule;
    EXPECT_THAT(pipeline::validate(schedule), IsEmpty());
    EXPECT_LE(pipeline::replay(schedule).peak_in_flight(), 5);
  }
}

TEST(PipelineSweep, AMemoryLimitThatNoOrderMeetsIsRefused) {
  EXPECT_THAT(problem_of({"--schedule", "zb-v", "--memory-limit", "1"}, 2),
              HasSubstr("no order runs with memory for 1"));
}

TEST(PipelineSweep, AModelsVocabularyIsPadded) {
  const Sweep sweep = sweep_of({"--model", "gpt3-175b", "--tp", "2"}, 4);
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("padded to")));
  EXPECT_EQ(sweep.cases.front().layer.shape.layers, 96);
}

/// Rank 0 sends four messages of 16 x 32 x 4 bytes and receives as many.
TEST(PipelineDryRun, CountsWhatARankSends) {
  const std::vector<std::string> arguments{
      "--dry-run", "--schedule", "1f1b", "--pp",    "3",  "--microbatches", "4",  "--layers",
      "3",         "--hidden",   "32",   "--heads", "2",  "--seq",          "16", "--batch",
      "1",         "--vocab",    "64",   "--dtype", "f32"};
  std::ostringstream out;
  EXPECT_TRUE(dry_run(out, parse_options(arguments).base, sweep_of(arguments, 3)));
  EXPECT_THAT(out.str(), testing::ContainsRegex("send_recv +8 +8.19 kB across the link"));
  EXPECT_THAT(out.str(),
              HasSubstr("communication of rank 0: 8.19 kB by formula, 8.19 kB by operations\n"));
}

}  // namespace
}  // namespace shardmark::bench::pp
