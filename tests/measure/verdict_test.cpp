#include "bench/harness/verdict.hpp"

#include "bench/harness/result.hpp"

#include <gmock/gmock.h>

#include <memory>

namespace shardmark::bench {
namespace {

/// 100 us of which 90 are compute and 5 exposed communication in 4 calls.
Result healthy() {
  Result result;
  result.config.layer.parallel.tp.size = 2;
  result.split = {.window_us = 100, .comp_us = 90, .comm_us = 5, .exposed_comm_us = 5};
  result.splits = {result.split, result.split};
  result.peak.tflops = 0.1;
  result.communication_only_us = 40;
  result.bytes_observed = 4e6;
  result.kernels = {{.op = "matmul",
                     .kind = "compute",
                     .count = 1,
                     .total_us = 90,
                     .flops = 8e6,
                     .bytes_memory = 1e5},
                    {.op = "all_reduce", .kind = "communication", .count = 4, .total_us = 5}};
  return result;
}
const VerdictInputs machine{.latency_us = 2, .copy_bandwidth_GBps = 10};
std::string name_of_verdict(const Result& result, const VerdictInputs& inputs = machine) {
  return judge(result, {}, inputs).name;
}

TEST(Verdict, IsComputeBoundWhenNothingElseIs) {
  EXPECT_EQ(name_of_verdict(healthy()), "compute_bound");
}

std::string reason_of(const Result& result) { return judge(result, {}, machine).reason; }

/// The rank that computes less waits for the other: 20 of its 30 us.
TEST(Verdict, ImbalanceComesBeforeTheWaitingThatItCauses) {
  Result result = healthy();
  result.time.samples = 10;
  result.splits[1] = {.window_us = 100, .comp_us = 70, .comm_us = 30, .exposed_comm_us = 30};
  result.split = result.splits[1];
  EXPECT_EQ(name_of_verdict(result), "imbalanced");
  EXPECT_THAT(reason_of(result),
              testing::AllOf(testing::HasSubstr("rank 0 computes 1.29x"),
                             testing::HasSubstr("about 10.0 % shorter; look for other load")));
  result.time.samples = 0;
  EXPECT_THAT(reason_of(result), testing::EndsWith("shorter")) << "predicted: no load, no cores";
}

TEST(Verdict, CommunicationThatCostsMoreThanImbalanceComesBefore) {
  Result result = healthy();
  result.splits = {{.window_us = 100, .comp_us = 40, .comm_us = 60, .exposed_comm_us = 60},
                   {.window_us = 100, .comp_us = 30, .comm_us = 70, .exposed_comm_us = 70},
                   {.window_us = 100, .comp_us = 35, .comm_us = 65, .exposed_comm_us = 65}};
  result.split = result.splits[1];
  EXPECT_EQ(name_of_verdict(result), "communication_bound") << "60 % against 5 %";
}

/// As `healthy`, a pipeline of the compute times of `ranks`, a stage of two blocks each.
Result pipeline(double bubble_us, const std::vector<double>& ranks = {90, 90}) {
  Result result = healthy();
  result.time.samples = 10;
  result.config.balance = "count";
  LayerConfig& layer = result.config.layer;
  layer.parallel.tp.size = 1;
  layer.parallel.pp.size = static_cast<int>(ranks.size());
  layer.pipeline.micro = 4;
  layer.pipeline.blocks.assign(ranks.size(), 2);
  pipeline::Schedule schedule;
  schedule.num_stages = layer.parallel.pp.size;
  for (int rank = 0; rank < schedule.num_stages; ++rank) schedule.rank_of_stage.push_back(rank);
  layer.pipeline.schedule = std::make_shared<const pipeline::Schedule>(schedule);
  result.split.exposed_comm_us = bubble_us;  // the receives that wait
  PipelineTimes times;
  times.measured = {{.window_us = 100, .exposed_transfer_us = 1}, 0, bubble_us / 100};
  times.replayed.of_total = 0.21;
  for (const double compute_us : ranks) times.ranks.push_back({.forward_us = compute_us});
  result.pipeline = times;
  return result;
}

TEST(Verdict, ABubbleAboveTheLimit) {
  const Verdict verdict = judge(pipeline(25), {}, machine);
  EXPECT_EQ(verdict.name, "bubble_bound");
  EXPECT_THAT(verdict.reason,
              testing::AllOf(testing::HasSubstr("25.0 % of the window (limit 20 %; 21.0 % by"),
                             testing::HasSubstr("--microbatches 8 (about 14.3 %)")));
  EXPECT_EQ(judge(pipeline(25), {.bubble_pct = 30}, machine).name, "compute_bound")
      << "waiting for a message is no communication";
}

/// Of the bubble, (slowest - mean) of the window is due to imbalance.
TEST(Verdict, OfImbalanceAndTheRestOfTheBubbleTheLargerCounts) {
  EXPECT_EQ(name_of_verdict(pipeline(45, {50, 50, 60})), "bubble_bound") << "6.7 of 45 %";
  EXPECT_EQ(name_of_verdict(pipeline(30, {50, 50, 80})), "imbalanced") << "20 of 30 %";
  EXPECT_EQ(name_of_verdict(pipeline(15, {50, 50, 60})), "imbalanced") << "no bubble to speak of";
}

TEST(Verdict, OfAPipelineTheMediansCountAndNotOneIteration) {
  Result result = pipeline(15, {80, 80, 80});
  result.splits[1].comp_us = 40;
  EXPECT_EQ(name_of_verdict(result), "compute_bound");
}

TEST(Verdict, WhatToDoAboutAnUnevenPipelineCanBeDone) {
  const std::vector<double> uneven{50, 80, 50};
  Result result = pipeline(30, uneven);
  EXPECT_THAT(reason_of(result), testing::AllOf(testing::StartsWith("rank 1 computes 1.60x"),
                                                testing::EndsWith("; try --balance measured, or "
                                                                  "--split with fewer blocks for "
                                                                  "it")));
  result.time.samples = 0;
  EXPECT_THAT(reason_of(result), testing::EndsWith("shorter; try --split with fewer blocks for it"))
      << "a prediction measures nothing";
  result = pipeline(30, uneven);
  result.config.layer.pipeline.blocks = {3, 1, 2};
  EXPECT_THAT(reason_of(result),
              testing::EndsWith("it has 1 block, and a stage needs one; try a smaller --pp"));
  result = pipeline(30, uneven);
  result.config.balance = "measured";
  EXPECT_THAT(reason_of(result), testing::EndsWith("; --balance measured chose its blocks"));
  result = pipeline(15, {50, 80, 80});
  result.config.layer.parallel.pp.size = 1;
  result.config.layer.parallel.tp.size = 3;
  EXPECT_THAT(reason_of(result),
              testing::EndsWith("; look for other load on its core, or pin the ranks"))
      << "there is one stage";
}

TEST(Verdict, OfAPipelinesCommunicationOnlyTransfersAndCollectivesCount) {
  Result result = pipeline(15);
  result.pipeline->measured.mean.collective_us = 26;
  EXPECT_EQ(name_of_verdict(result), "communication_bound");
  EXPECT_THAT(reason_of(result),
              testing::AllOf(testing::HasSubstr("27.0 %"), testing::HasSubstr("without waiting"),
                             testing::Not(testing::HasSubstr("exposed"))))
      << "exposed% of the table has the waiting in it";
}

TEST(Verdict, OfAPipelinesCommunicationTheCauseIsNamed) {
  Result result = pipeline(15);
  result.config.layer.parallel.tp.size = 4;
  result.config.layer.parallel.dp.size = 2;
  result.pipeline->measured.mean.collective_us = 26;
  result.kernels = {
      {.rank = 0, .kind = "communication", .lane = "tp", .count = 4, .total_us = 20},
      {.rank = 0, .kind = "communication", .lane = "dp", .count = 1, .total_us = 5},
      {.rank = 1, .kind = "communication", .lane = "pp_fwd_recv", .count = 1, .total_us = 50}};
  EXPECT_THAT(reason_of(result), testing::EndsWith("; most is of tp: try --tp 2 with more --pp, or "
                                                   "a larger hidden size"));
  result.kernels[1].total_us = 25;
  EXPECT_THAT(reason_of(result), testing::HasSubstr("; most is of dp: try more --microbatches"));
  result.pipeline->measured.mean.exposed_transfer_us = 30;
  EXPECT_THAT(reason_of(result), testing::EndsWith("; try a larger hidden size"));
}

TEST(Verdict, CommunicationAboveTheLimit) {
  Result result = healthy();
  result.split.exposed_comm_us = 26;
  EXPECT_EQ(name_of_verdict(result), "communication_bound");
  EXPECT_THAT(judge(result, {}, machine).reason,
              testing::AllOf(testing::HasSubstr("26.0 %"), testing::HasSubstr("--overlap on")));
  EXPECT_EQ(judge(result, {.communication_pct = 30}, machine).name, "compute_bound");
}

TEST(Verdict, WarnsBeforeTheLimit) {
  Result result = healthy();
  result.split.exposed_comm_us = 22;
  EXPECT_THAT(judge(result, {}, machine).reason, testing::HasSubstr("warning level of 20 %"));
}

TEST(Verdict, LatencyThatIsMostOfACall) {
  Result result = healthy();
  result.split.exposed_comm_us = 15;
  EXPECT_EQ(name_of_verdict(result, {.latency_us = 6, .copy_bandwidth_GBps = 10}), "latency_bound");
  EXPECT_EQ(name_of_verdict(result, {.latency_us = 4, .copy_bandwidth_GBps = 10}), "compute_bound");
}

/// The times are those of the rank that sends most; rank 0 of a pipeline may have fewer calls.
TEST(Verdict, LatencyCountsCallsAndBytesOfOneRank) {
  Result result = healthy();
  result.split.exposed_comm_us = 15;
  result.kernels = {{.rank = 0, .kind = "communication", .count = 2, .bytes_wire = 2e3},
                    {.rank = 1, .kind = "communication", .count = 3, .bytes_wire = 7e3},
                    {.rank = 1, .op = "barrier", .kind = "communication", .count = 1},
                    {.rank = 2, .kind = "communication", .count = 8, .bytes_wire = 1e3}};
  const VerdictInputs slow{.latency_us = 6, .copy_bandwidth_GBps = 10};
  EXPECT_EQ(name_of_verdict(result, slow), "latency_bound");
  EXPECT_THAT(judge(result, {}, slow).reason,
              testing::HasSubstr("takes 10.0 us of which 6.0 us are latency (1750 bytes a call)"))
      << "40 us and 7e3 bytes in the 4 calls of rank 1";
  EXPECT_EQ(name_of_verdict(result, {.latency_us = 4, .copy_bandwidth_GBps = 10}), "compute_bound");
}

TEST(Verdict, MoreMemoryThanARankHas) {
  Result result = healthy();
  result.mem_peak_bytes = 90'100'000'000;
  VerdictInputs small = machine;
  EXPECT_EQ(name_of_verdict(result, small), "compute_bound") << "nobody asked";
  small.memory_bytes = 90.1e9;
  EXPECT_EQ(name_of_verdict(result, small), "compute_bound") << "it is enough";
  small.memory_bytes = 80e9;
  EXPECT_EQ(name_of_verdict(result, small), does_not_fit);
  EXPECT_THAT(judge(result, {}, small).reason,
              testing::AllOf(testing::HasSubstr("needs 90.1 GB"), testing::HasSubstr("has 80.0 GB"),
                             testing::HasSubstr("try more tp, or a smaller --batch; "),
                             testing::HasSubstr("if it fitted: compute_bound: compute is 90.0 %")));
  Result stages = pipeline(25);
  stages.mem_peak_bytes = result.mem_peak_bytes;
  EXPECT_THAT(judge(stages, {}, small).reason,
              testing::AllOf(testing::HasSubstr("try more tp or pp, or --recompute full; "),
                             testing::HasSubstr("if it fitted: bubble_bound: the bubble is")));
  stages.config.layer.recompute = Recompute::full;
  EXPECT_THAT(judge(stages, {}, small).reason, testing::HasSubstr("try more tp or pp; "));
}

TEST(Verdict, MemoryBoundKernels) {
  Result result = healthy();
  result.kernels[0].bytes_memory = 1.5e6;  // 16.7 GB/s of the 20 that a copy moves
  result.kernels[0].flops = 2e6;           // 22 % of the peak
  EXPECT_EQ(name_of_verdict(result), "memory_bound");
  result.kernels[0].flops = 4e6;
  EXPECT_EQ(name_of_verdict(result), "compute_bound");
  result.kernels[0].flops = 2e6;
  result.kernels[0].bytes_memory = 2.7e6;  // more than memory can move: it came from a cache
  EXPECT_EQ(name_of_verdict(result), "compute_bound");
}

}  // namespace
}  // namespace shardmark::bench
