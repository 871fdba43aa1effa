// What the op lists of pipelines promise: free of races with every fence and not without one,
// matched, without deadlock; communication and FLOPs equal the closed forms.

#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/mutate.hpp"
#include "core/record/races.hpp"
#include "layers/check.hpp"
#include "layers/pipeline_program.hpp"
#include "layers/volume.hpp"
#include "tests/pipeline/programs.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using test::Lowering;
using test::pipeline_case;
using test::PipelineCase;
using test::RecordedSteps;
using test::ScheduleKind;
using testing::IsEmpty;
using testing::Not;

void expect_clean(const PipelineCase& c) {
  const RecordedSteps steps{c, 2};
  for (std::size_t rank = 0; rank < steps.ops.size(); ++rank)
    EXPECT_THAT(find_races(steps.ops[rank]), IsEmpty()) << c << " rank " << rank;
  EXPECT_THAT(check_matching(steps.ops), IsEmpty()) << c;
  EXPECT_THAT(find_deadlock(steps.ops), IsEmpty()) << c;
}

TEST(PipelineRecords, AreFreeOfRacesMatchedAndWithoutDeadlock) {
  for (const PipelineCase& c : test::all_schedules({1, 2, 3, 4}, {4, 6, 8})) expect_clean(c);
}

/// Recomputation, tied embeddings, sequence parallelism, shared KV heads.
void add_options(std::vector<PipelineCase>& cases) {
  const auto add = [&](ScheduleKind kind, int ranks, int tp, int dp, const auto& change) {
    cases.push_back(pipeline_case(kind, {.ranks = ranks, .micro = 6}, Lowering::split, tp, dp));
    change(cases.back().config);
  };
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    const auto recomputes = [&](LayerConfig& config) { config.recompute = recompute; };
    add(ScheduleKind::one_f_one_b, 3, 1, 1, recomputes);
    add(ScheduleKind::interleaved, 3, 2, 1, recomputes);
  }
  const auto ties = [](LayerConfig& config) { config.tied_embeddings = true; };
  add(ScheduleKind::one_f_one_b, 3, 1, 1, ties);
  add(ScheduleKind::interleaved, 2, 2, 2, ties);
  add(ScheduleKind::zb_v, 3, 1, 2, ties);
  add(ScheduleKind::dualpipe, 2, 2, 2, ties);
  const auto splits_tokens = [](LayerConfig& config) {
    config.parallel.sequence_parallel = true;
    config.shape.positions = Positions::learned;
    config.shape.kv_heads = 1;
  };
  add(ScheduleKind::zb_v, 3, 2, 1, splits_tokens);
  add(ScheduleKind::dualpipe, 2, 2, 2, splits_tokens);
  add(ScheduleKind::one_f_one_b, 2, 2, 2, [&](LayerConfig& config) {
    splits_tokens(config);
    ties(config);
    config.recompute = Recompute::full;
  });
}

/// TP inside, copies outside, uneven stages, fewer micro-batches than stages.
std::vector<PipelineCase> variants() {
  std::vector<PipelineCase> cases;
  for (const Lowering lowering : {Lowering::split, Lowering::merged})
    for (const auto& [kind, micro] : {std::pair{ScheduleKind::one_f_one_b, 4},
                                      {ScheduleKind::zb_v, 4},
                                      {ScheduleKind::dualpipe, 4}}) {
      cases.push_back(pipeline_case(kind, {.ranks = 2, .micro = micro}, lowering, 2));
      cases.push_back(pipeline_case(kind, {.ranks = 2, .micro = micro}, lowering, 1, 2));
      cases.push_back(pipeline_case(kind, {.ranks = 2, .micro = micro}, lowering, 2, 2));
    }
  cases.push_back(pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 4, .micro = 2}));
  cases.push_back(pipeline_case(ScheduleKind::gpipe, {.ranks = 3, .micro = 1}));
  cases.push_back(pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4}));
  set_blocks(cases.back(), {2, 3, 1});
  cases.push_back(pipeline_case(ScheduleKind::zb_h1, {.ranks = 3, .micro = 4}));
  cases.back().config.shape.positions = Positions::learned;
  cases.back().config.shape.mlp = MlpKind::swiglu;
  cases.back().config.shape.norm = NormKind::rms;
  cases.back().config.dtype = DType::bf16;
  add_options(cases);
  return cases;
}

TEST(PipelineRecords, OfVariantsAreClean) {
  for (const PipelineCase& c : variants()) expect_clean(c);
}

/// Deletes every Signal and every Await of the second of three iterations, one at a time.
TEST(PipelineRecords, EveryFenceIsNeeded) {
  std::vector<PipelineCase> cases = test::all_schedules({2, 3}, {4});
  cases.push_back(
      pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 2, .micro = 4}, Lowering::split, 1, 2));
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    cases.push_back(pipeline_case(kind, {.ranks = 3, .micro = 6}));
    cases.back().config.tied_embeddings = true;
    cases.back().config.recompute = Recompute::full;
  }
  int num_deleted = 0;
  for (const PipelineCase& c : cases) {
    const RecordedSteps steps{c, 3};
    for (const std::vector<OpRecord>& ops : steps.ops)
      for (std::size_t position = 0; position < ops.size(); ++position) {
        if (kind_of(ops[position].op) != OpKind::ordering) continue;
        if (!ops[position].path->starts_with("1")) continue;
        ++num_deleted;
        EXPECT_THAT(find_races(without_op(ops, position)), Not(IsEmpty()))
            << c << ": nobody misses " << to_string(ops[position]);
      }
  }
  EXPECT_GT(num_deleted, 1000);
}

TEST(PipelineRecords, ADroppedMessageIsCaught) {
  int num_dropped = 0;
  for (const PipelineCase& c : test::all_schedules({2, 3}, {4})) {
    const RecordedSteps steps{c, 1};
    for (std::size_t rank = 0; rank < steps.ops.size(); ++rank)
      for (std::size_t position = 0; position < steps.ops[rank].size(); ++position) {
        if (!std::holds_alternative<SendRecv>(steps.ops[rank][position].op)) continue;
        auto ops = steps.ops;
        ops[rank] = without_op(ops[rank], position);
        ++num_dropped;
        EXPECT_THAT(check_matching(ops), Not(IsEmpty())) << c << " rank " << rank;
        EXPECT_THAT(find_deadlock(ops), Not(IsEmpty())) << c << " rank " << rank;
      }
  }
  EXPECT_GT(num_dropped, 200);
}

TEST(PipelineRecords, CommunicationEqualsTheFormula) {
  std::vector<PipelineCase> cases = test::all_schedules({1, 2, 3, 4}, {4, 8});
  for (PipelineCase& c : variants()) cases.push_back(std::move(c));
  for (const PipelineCase& c : cases)
    for (int rank = 0; rank < c.ranks(); ++rank)
      EXPECT_NEAR(record_program(c.on(rank), Phase::step, 1).bytes_wire,
                  total_bytes(communication_volume(c.on(rank), Phase::step)), 0.5)
          << c << " rank " << rank;
}

/// The model's FLOPs of every micro-batch, plus the recomputed attention: 2.5 instead of 2 times
/// the forward; plus what --recompute does again, and the keys and values of shared heads, which
/// several ranks compute.
TEST(PipelineRecords, FlopsEqualTheFormula) {
  for (const PipelineCase& c : variants()) {
    double executed = 0;
    for (int rank = 0; rank < c.ranks(); ++rank)
      executed += record_program(c.on(rank), Phase::step, 1).flops;
    const ModelShape& shape = c.config.shape;
    const double pairs = 6.0 * 7 / 2 * static_cast<double>(shape.batch);
    const double core = 4.0 * static_cast<double>(shape.query_width() * shape.layers) * pairs *
                        c.config.num_micro();
    const double logits = 2.0 * static_cast<double>(shape.tokens() * shape.hidden * shape.vocab) *
                          c.config.num_micro();
    const auto copies =
        static_cast<double>(std::max<std::int64_t>(0, c.config.parallel.tp.size - shape.kv_heads));
    const double shared =
        2.0 *
        static_cast<double>(shape.tokens() * shape.hidden * 2 * shape.head_dim * shape.layers) *
        copies * c.config.num_micro();
    double again = 3 * shared;
    if (c.config.recompute == Recompute::selective) again += core;
    if (c.config.recompute == Recompute::full)
      again += model_flops(c.on(0), Phase::forward).causal - logits + shared;
    EXPECT_DOUBLE_EQ(executed, model_flops(c.on(0), Phase::step).causal + 0.5 * core + again) << c;
  }
}

TEST(PipelineTies, EndsAreApartUnlessOneRankHoldsBoth) {
  const auto ends = [](ScheduleKind kind, int rank) {
    const PipelineCase c = pipeline_case(kind, {.ranks = 4, .micro = 8}, Lowering::split, 2);
    return ends_of_tie(c.on(rank)).to_string();
  };
  EXPECT_EQ(ends(ScheduleKind::one_f_one_b, 1), "pp[1,7]");
  EXPECT_EQ(ends(ScheduleKind::interleaved, 6), "pp[0,6]");
  EXPECT_EQ(ends(ScheduleKind::one_f_one_b, 2), "pp[2]");
  EXPECT_EQ(ends(ScheduleKind::zb_v, 1), "pp[1]");
  EXPECT_EQ(ends(ScheduleKind::dualpipe, 6), "pp[6]");
}

/// Every weight of the model is held once per copy, or twice by DualPipe; every micro-batch begins
/// and ends once.
TEST(PipelineRecords, RanksHoldTheWholeModel) {
  for (const PipelineCase& c : test::all_schedules({3, 4}, {8})) {
    std::map<std::string, int> holders;
    for (int rank = 0; rank < c.ranks(); ++rank)
      for (const NamedTensor& named : record_program(c.on(rank), Phase::step, 1).program->tensors())
        ++holders[named.name];
    const int copies = c.schedule().is_two_way() ? 2 : 1;
    for (int block = 0; block < c.config.shape.layers; ++block)
      EXPECT_EQ(holders[message("block", block, "/mlp/fc1/weight_grad")], copies) << c;
    EXPECT_EQ(holders["embedding/table"], copies) << c;
    EXPECT_EQ(holders["final_norm/gain"], copies) << c;
    for (int micro = 0; micro < c.schedule().num_micro; ++micro)
      for (const char* name : {"embedding/ids", "head/targets", "head/loss"})
        EXPECT_EQ(holders[message("micro", micro, '/', name)], 1) << c;
    EXPECT_FALSE(holders.contains("block0/y")) << c;
  }
}

TEST(PipelineRecords, CopiesHaveMicroBatchesOfTheirOwn) {
  const PipelineCase c =
      pipeline_case(ScheduleKind::gpipe, {.ranks = 2, .micro = 3}, Lowering::split, 1, 2);
  std::vector<std::string> names;
  for (int rank = 0; rank < c.ranks(); ++rank)
    for (const NamedTensor& named : record_program(c.on(rank), Phase::step, 1).program->tensors())
      if (named.name.ends_with("/ids")) names.push_back(named.name);
  EXPECT_THAT(names, testing::ElementsAre("micro0/embedding/ids", "micro1/embedding/ids",
                                          "micro2/embedding/ids", "micro3/embedding/ids",
                                          "micro4/embedding/ids", "micro5/embedding/ids"));
}

TEST(PipelineRecords, AStageOfDualPipeIsHeldByTwoRanks) {
  const PipelineCase c =
      pipeline_case(ScheduleKind::dualpipe, {.ranks = 4, .micro = 8}, Lowering::split, 2);
  for (const int rank : {2, 4}) {  // tp position 0 of the stages in the middle
    const Group group = copies_of(c.on(rank), 1);
    EXPECT_EQ(group.to_string(), "pp[2,4]");
    EXPECT_EQ(group.world_rank(group.position), rank);
  }
  EXPECT_EQ(copies_of(c.on(7), 3).to_string(), "pp[1,7]");
}

TEST(PipelineReduced, KeepsTheScheduleAndUnevenStages) {
  PipelineCase c =
      pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 5}, Lowering::split, 2);
  c.config.shape.hidden = 4096;
  c.config.shape.heads = c.config.shape.kv_heads = 32;
  c.config.shape.head_dim = 128;
  c.config.shape.seq = 2048;
  c.config.shape.vocab = 32000;
  set_blocks(c, {11, 11, 10});
  const LayerConfig small = reduced_config(c.on(4));
  EXPECT_NO_THROW(check_divisible(small));
  EXPECT_EQ(small.pipeline.schedule, c.config.pipeline.schedule);
  EXPECT_THAT(small.pipeline.blocks, testing::ElementsAre(2, 2, 1));
  EXPECT_EQ(small.shape.layers, 5);
  EXPECT_LE(small.shape.seq, 16);
  set_blocks(c, {8, 8, 8});
  EXPECT_THAT(reduced_config(c.on(4)).pipeline.blocks, testing::ElementsAre(1, 1, 1));
  c = pipeline_case(ScheduleKind::gpipe, {.ranks = 1, .micro = 2});
  set_blocks(c, {8});
  EXPECT_THAT(reduced_config(c.on(0)).pipeline.blocks, testing::ElementsAre(2));
}

TEST(PipelineProgram, HasOnlySteps) {
  const PipelineCase c = pipeline_case(ScheduleKind::gpipe, {.ranks = 3, .micro = 2});
  const Recording recording = record_program(c.on(1), Phase::step, 1);
  EXPECT_THROW(recording.program->forward(), Error);
  EXPECT_THROW(recording.program->backward(), Error);
}

std::string refusal_of(const LayerConfig& config) {
  return test::refusal([&] { check_divisible(config); });
}

TEST(PipelineInput, WhatAPipelineDoesNotOfferIsRefused) {
  const auto with = [](const auto& change) {
    PipelineCase c =
        pipeline_case(ScheduleKind::gpipe, {.ranks = 2, .micro = 2}, Lowering::split, 2);
    change(c.config);
    return refusal_of(c.on(0));
  };
  EXPECT_EQ(with([](LayerConfig&) {}), "accepted");
  EXPECT_THAT(with([](LayerConfig& config) { config.parallel.context.cp.size = 2; }),
              testing::HasSubstr("cp 2"));
  EXPECT_THAT(with([](LayerConfig& config) { config.block = BlockKind::block; }),
              testing::HasSubstr("block"));
}

TEST(PipelineInput, WeightGradientsThatComeLaterAllowNoRecomputation) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    for (const PipelineCase& c : test::all_schedules({1, 2, 3, 4}, {8})) {
      LayerConfig config = c.on(0);
      config.recompute = recompute;
      const std::string name = c.config.pipeline.schedule_name;
      const bool is_whole = name == "gpipe" || name == "1f1b" || name == "interleaved";
      if (is_whole)
        EXPECT_EQ(refusal_of(config), "accepted") << c;
      else
        EXPECT_THAT(refusal_of(config),
                    testing::AllOf(testing::HasSubstr(message("recompute ", name_of(recompute))),
                                   testing::HasSubstr(name + " has weight gradients apart"),
                                   testing::HasSubstr("try recompute none, or gpipe, 1f1b")))
            << c;
    }
}

}  // namespace
}  // namespace shardmark
