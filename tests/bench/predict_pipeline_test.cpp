#include "bench/harness/predict.hpp"
#include "core/error.hpp"
#include "layers/pipeline/generate.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/pipeline/split.hpp"
#include "sim/predict.hpp"
#include "tests/sim/machines.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace shardmark::bench {
namespace {

using pipeline::ScheduleKind;

struct Degrees {
  int dp, pp, tp;
};

/// Twelve micro-batches of a model with a block or two in each stage.
Case pipeline_case(ScheduleKind kind, const Degrees& degrees) {
  Case config;
  LayerConfig& layer = config.layer;
  layer.block = BlockKind::model;
  layer.accumulate_gradients = true;
  layer.shape = {.hidden = 96, .heads = 6, .kv_heads = 6, .head_dim = 16, .ffn = 384};
  layer.shape.seq = 24;
  layer.shape.vocab = 192;
  layer.parallel.dp.size = degrees.dp;
  layer.parallel.pp.size = degrees.pp;
  layer.parallel.tp.size = degrees.tp;
  layer.parallel = layer.parallel.at(0, 0);
  PipelineConfig& run = layer.pipeline;
  run.micro = 12;
  const pipeline::Request request{degrees.pp, run.micro};
  run.schedule_name = pipeline::facts_of(kind).name;
  run.chunks = pipeline::num_chunks(kind, request);
  const int num_stages = pipeline::num_stages(kind, request);
  layer.shape.layers = num_stages + 1;
  run.blocks = pipeline::split_evenly(layer.shape.layers, num_stages);
  run.schedule = std::make_shared<const pipeline::Schedule>(
      pipeline::lower(pipeline::generate(kind, request), pipeline::Lowering::split));
  return config;
}

bool is_in_first_pipeline(const Case& config, std::size_t rank) {
  const Group pipeline = config.layer.parallel.at(0, 0).pp;
  const int stage = static_cast<int>(rank) / pipeline.stride;
  return stage < pipeline.size && pipeline.world_rank(stage) == static_cast<int>(rank);
}

/// Every rank recorded and replayed on its own.
class Unfolded {
 public:
  Unfolded(const Case& config, const Machine& machine) {
    LayerConfig layer = config.layer;
    for (int rank = 0; rank < layer.parallel.num_ranks(); ++rank) {
      layer.parallel = config.layer.parallel.at(0, rank);
      recordings_.push_back(record_program(layer, config.phase, 1));
      lists_.push_back(recordings_.back().ops);
    }
    const Replay replay = predict(lists_, machine).replay;
    window_us = static_cast<double>(replay.window_ns) / 1e3;
    std::vector<RankIteration> ranks;
    for (std::size_t i = 0; i < lists_.size(); ++i)
      ranks.push_back({.begin_ns = 0,
                       .end_ns = replay.window_ns,
                       .idle_ns = replay.times[i].idle_ns,
                       .records = kernel_records(lists_[i], replay.ops[i])});
    PipelineAnalysis analysis{lists_, config.layer.pipeline.schedule->num_stages};
    splits = analysis.split(ranks);
  }

  double window_us{0};
  std::vector<PipelineSplit> splits;

 private:
  std::vector<Recording> recordings_;
  std::vector<std::vector<OpRecord>> lists_;
};

TEST(PredictPipeline, FoldedRanksHaveTheBubbleOfUnfoldedOnes) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::interleaved,
                                  ScheduleKind::zb_h1, ScheduleKind::dualpipe})
    for (const Degrees& degrees : {Degrees{1, 3, 2}, {2, 2, 2}, {2, 4, 1}}) {
      if (kind == ScheduleKind::dualpipe && degrees.pp % 2 != 0) continue;
      const Case config = pipeline_case(kind, degrees);
      for (const int ranks_per_node : {2, 64}) {
        const std::string where =
            message(config.layer.pipeline.schedule_name, " dp ", degrees.dp, " pp ", degrees.pp,
                    " tp ", degrees.tp, ", nodes of ", ranks_per_node);
        const Machine machine = test::round_machine(ranks_per_node);
        const Outcome folded = predict_row(config, machine, {});
        ASSERT_EQ(folded.result.status, Status::ok) << where << ": " << folded.result.reason;
        ASSERT_TRUE(folded.result.pipeline.has_value()) << where;
        EXPECT_EQ(folded.result.pipeline->problem, "") << where;
        const Unfolded unfolded{config, machine};
        EXPECT_EQ(folded.result.time.p50, unfolded.window_us) << where;
        ASSERT_EQ(folded.result.pipeline->ranks.size(), unfolded.splits.size()) << where;
        for (std::size_t rank = 0; rank < unfolded.splits.size(); ++rank) {
          // Other pipelines have equal times only where they lie on the nodes alike.
          if (ranks_per_node == 2 && !is_in_first_pipeline(config, rank)) continue;
          const PipelineSplit& split = folded.result.pipeline->ranks[rank];
          const PipelineSplit& expected = unfolded.splits[rank];
          EXPECT_NEAR(split.bubble_us, expected.bubble_us, 1e-6)
              << "rank " << rank << ", " << where;
          EXPECT_NEAR(split.wait_us, expected.wait_us, 1e-6) << "rank " << rank << ", " << where;
          EXPECT_NEAR(split.drain_us, expected.drain_us, 1e-6) << "rank " << rank << ", " << where;
          EXPECT_NEAR(split.residual_us, 0, 1e-6) << "rank " << rank << ", " << where;
        }
        EXPECT_EQ(folded.result.bytes_observed, folded.result.bytes_analytic) << where;
      }
    }
}

/// Ends of a pipeline send one message where the others send two, and hold the tables.
TEST(PredictPipeline, RanksThatDifferCountByTheirMeanOrTheirLargest) {
  for (const Degrees& degrees : {Degrees{1, 3, 1}, {1, 4, 1}, {2, 3, 2}}) {
    const Case config = pipeline_case(ScheduleKind::one_f_one_b, degrees);
    const Result result = predict_row(config, test::round_machine(64), {}).result;
    const std::string where =
        message("dp ", degrees.dp, " pp ", degrees.pp, " tp ", degrees.tp, ": ", result.reason);
    const int num_ranks = config.layer.parallel.num_ranks();
    double flops = 0, most_bytes = 0, bytes_of_first = 0;
    std::int64_t most_memory = 0;
    LayerConfig layer = config.layer;
    for (int rank = 0; rank < num_ranks; ++rank) {
      layer.parallel = config.layer.parallel.at(0, rank);
      const Recording recording = record_program(layer, config.phase, 1);
      flops += recording.flops;
      if (rank == 0) bytes_of_first = recording.bytes_wire;
      most_bytes = std::max(most_bytes, recording.bytes_wire);
      most_memory = std::max(most_memory, recording.tensor_bytes + recording.workspace_bytes);
    }
    EXPECT_DOUBLE_EQ(result.flops_observed, flops / num_ranks) << where;
    EXPECT_GE(result.hfu_pct(), result.mfu_causal_pct()) << where;
    EXPECT_EQ(result.mem_predicted_bytes, most_memory) << where;
    EXPECT_EQ(result.bytes_observed, most_bytes) << where;
    EXPECT_EQ(result.bytes_analytic, most_bytes) << where;
    EXPECT_EQ(total_bytes(result.volume), most_bytes) << where;
    if (degrees.dp * degrees.tp > 1) continue;
    EXPECT_EQ(result.bytes_observed, 2 * bytes_of_first) << where;
  }
}

}  // namespace
}  // namespace shardmark::bench
