// Interval unions and the time identity of a profiled iteration.

#include "bench/harness/trace.hpp"
#include "profiler/analyse.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

KernelRecord kernel(OpKind kind, std::int64_t start_ns, std::int64_t end_ns) {
  return {0, Lane::compute, kind, "k", start_ns, end_ns};
}
constexpr OpKind comp = OpKind::compute;
constexpr OpKind comm = OpKind::communication;

TEST(Union, MergesSortsAndDropsEmptySpans) {
  const auto spans = united({{5, 9}, {0, 2}, {8, 12}, {3, 3}, {2, 4}});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(length_ns(spans), 4 + 7);
}

TEST(Occupancy, CountsDoublyCoveredTimeOnce) {
  const std::vector<KernelRecord> records{kernel(comp, 0, 10), kernel(comp, 5, 15),
                                          kernel(comm, 8, 20), kernel(comm, 18, 30)};
  const Occupancy used = occupancy(records, {0, 40});
  EXPECT_EQ(used.comp_ns, 15);
  EXPECT_EQ(used.comm_ns, 22);
  EXPECT_EQ(used.overlapped_ns, 7);
  EXPECT_EQ(used.exposed_comm_ns, 15);
}

TEST(Occupancy, IsCutToTheWindow) {
  const std::vector<KernelRecord> records{kernel(comp, -10, 10), kernel(comm, 5, 100)};
  const Occupancy used = occupancy(records, {0, 20});
  EXPECT_EQ(used.comp_ns, 10);
  EXPECT_EQ(used.exposed_comm_ns, 10);
}

/// A window of 100: computing 60, 15 of communication exposed, 25 idle by the executor's clock.
bench::ProfiledIteration iteration() {
  bench::ProfiledIteration it;
  it.begin_ns = 1000;
  it.end_ns = 1100;
  it.idle_ns = 25;
  it.records = {kernel(comp, 1010, 1070), kernel(comm, 1060, 1085)};
  return it;
}

TEST(TimeIdentity, HasNoResidualWhenEverythingIsRecorded) {
  const bench::TimeSplit split = bench::split_window(iteration());
  EXPECT_DOUBLE_EQ(split.comp_us, 0.060);
  EXPECT_DOUBLE_EQ(split.exposed_comm_us, 0.015);
  EXPECT_DOUBLE_EQ(split.overlapped_us, 0.010);
  EXPECT_NEAR(split.residual_us, 0, 1e-12);
}

TEST(TimeIdentity, ALostRecordOrAWrongIdleTimeShowsInTheResidual) {
  for (std::size_t lost = 0; lost < 2; ++lost) {
    bench::ProfiledIteration broken = iteration();
    broken.records.erase(broken.records.begin() + static_cast<std::ptrdiff_t>(lost));
    EXPECT_GT(bench::split_window(broken).residual_us, 0.001 * 0.1);
  }
  bench::ProfiledIteration broken = iteration();
  broken.idle_ns += 5;
  EXPECT_LT(bench::split_window(broken).residual_us, -0.001 * 0.1);
}

TEST(Trace, SurvivesTheWayToAnotherRank) {
  bench::RankTrace trace{3, 12.5, {}};
  trace.intervals.push_back({.name = "brg",
                             .op = "matmul",
                             .path = "step/mlp",
                             .dtype = "f32",
                             .lane = Lane::tp,
                             .kind = comm,
                             .op_seq = 7,
                             .start_us = 1.25,
                             .end_us = 2.5,
                             .group = "tp[0,1]",
                             .group_size = 2,
                             .elements = 9});
  const bench::RankTrace back = bench::unpack(bench::pack(trace));
  ASSERT_EQ(back.intervals.size(), 1U);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.intervals[0].path, "step/mlp");
  EXPECT_EQ(back.intervals[0].lane, Lane::tp);
  EXPECT_EQ(back.intervals[0].end_us, 2.5);
}

TEST(KernelSummaries, AddUpTilesAndRepeatedOpsButCountOps) {
  bench::RankTrace trace{0, 10, {}};
  for (int i = 0; i < 3; ++i)
    trace.intervals.push_back({.name = "brg",
                               .op = "matmul",
                               .path = "step/mlp",
                               .op_seq = static_cast<std::uint32_t>(i / 2),
                               .start_us = 1.0 * i,
                               .end_us = 1.0 * i + 0.5,
                               .flops = 10});
  trace.intervals.push_back({.name = "brg", .op = "matmul", .path = "step/other", .end_us = 1});
  const auto summaries = bench::summarize_kernels({trace});
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[0].count, 2);  // two tiles of one op, and another op
  EXPECT_DOUBLE_EQ(summaries[0].total_us, 1.5);
  EXPECT_DOUBLE_EQ(summaries[0].flops, 30);
}

/// The copies of a stage and those of a model are summed at one place of a program.
TEST(KernelSummaries, GroupsOfOtherSizesAreApart) {
  bench::RankTrace trace{0, 10, {}};
  for (const int size : {2, 3, 2})
    trace.intervals.push_back({.name = "all_reduce",
                               .op = "all_reduce",
                               .path = "step/sum_gradients",
                               .kind = comm,
                               .op_seq = static_cast<std::uint32_t>(trace.intervals.size()),
                               .end_us = 1,
                               .group_size = size});
  const auto summaries = bench::summarize_kernels({trace});
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[0].group_size, 2);
  EXPECT_EQ(summaries[0].count, 2);
  EXPECT_EQ(summaries[1].group_size, 3);
}

}  // namespace
}  // namespace shardmark
