#include "bench/harness/verdict.hpp"

#include "bench/harness/result.hpp"

#include <gmock/gmock.h>

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

TEST(Verdict, ImbalanceComesFirst) {
  Result result = healthy();
  result.splits[1].comp_us = 70;
  result.split.exposed_comm_us = 50;
  EXPECT_EQ(name_of_verdict(result), "imbalanced");
  EXPECT_THAT(judge(result, {}, machine).reason, testing::HasSubstr("rank 0 computes 1.29x"));
}

/// Like `healthy`, as a pipeline with a bubble of `bubble_us`.
Result pipeline(double bubble_us) {
  Result result = healthy();
  result.config.layer.pipeline.micro = 4;
  result.split.exposed_comm_us = bubble_us;  // the receives that wait
  PipelineTimes times;
  times.measured = {{.window_us = 100, .exposed_transfer_us = 1}, 0, bubble_us / 100};
  times.replayed.of_total = 0.21;
  result.pipeline = times;
  return result;
}

TEST(Verdict, ABubbleAboveTheLimitComesAfterImbalance) {
  const Verdict verdict = judge(pipeline(25), {}, machine);
  EXPECT_EQ(verdict.name, "bubble_bound");
  EXPECT_THAT(verdict.reason,
              testing::AllOf(testing::HasSubstr("25.0 % of the window (limit 20 %; 21.0 % by"),
                             testing::HasSubstr("--microbatches 8 (about 14.3 %)")));
  EXPECT_EQ(judge(pipeline(25), {.bubble_pct = 30}, machine).name, "compute_bound")
      << "waiting for a message is no communication";
  Result uneven = pipeline(25);
  uneven.splits[1].comp_us = 70;
  EXPECT_EQ(judge(uneven, {}, machine).name, "imbalanced");
  EXPECT_THAT(judge(uneven, {}, machine).reason, testing::HasSubstr("--balance measured"));
}

TEST(Verdict, OfAPipelinesCommunicationOnlyTransfersAndCollectivesCount) {
  Result result = pipeline(15);
  result.pipeline->measured.mean.collective_us = 26;
  EXPECT_EQ(name_of_verdict(result), "communication_bound");
  EXPECT_THAT(judge(result, {}, machine).reason, testing::HasSubstr("27.0 %"));
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
