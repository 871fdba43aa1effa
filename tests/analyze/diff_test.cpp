#include "bench/analyze/diff.hpp"

#include "tests/analyze/collectives_recording.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunDiff diff(const Recording& a, const Recording& b) {
  return diff_runs(a, spans_on(a, whole_trace), b, spans_on(b, whole_trace));
}

/// Three ranks that twice compute and all-reduce: a small one that takes 10 us and a large one that
/// takes 100 us. Rank 1 computes `late_ns` longer before the large one.
Recording program(std::int64_t late_ns, std::int64_t idle_ns = 0) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const std::int64_t own_ns = rank == 1 ? late_ns : 0;
    const std::int64_t pause_ns = rank == 1 ? idle_ns : 0;
    RankBuilder& builder = ranks.emplace_back(rank).group("tp", {0, 1, 2});
    builder.compute(0, 200'000, "gemm").call("allreduce", 16, 200'000, 210'000);
    const std::int64_t begin_ns = 210'000 + pause_ns, ready_ns = begin_ns + 200'000 + own_ns;
    builder.compute(begin_ns, ready_ns, "attention");
    builder.call("allreduce", 4096, ready_ns, 510'000 + late_ns + idle_ns);
  }
  return recording_of(ranks);
}

Change change_of(const RunDiff& result, int rank, const std::string& category) {
  for (const CategoryChange& change : result.categories)
    if (change.rank == rank && change.category == category) return change.time;
  ADD_FAILURE() << "no " << category << " of rank " << rank;
  return {};
}

TEST(Diff, NamesTheSlowerRankAndTheCollectiveThatWaits) {
  const RunDiff result = diff(program(0), program(300'000));
  EXPECT_EQ(result.conclusion,
            "rank 1 is slower in B: the other ranks wait 600.000 us longer for it (A 0.000 us, B "
            "600.000 us), most of it in all_reduce of group tp with 16384 bytes (600.000 us "
            "longer); its compute takes 300.000 us longer");
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(Diff, NamesARankThatIsLateWithoutComputing) {
  const RunDiff result = diff(program(0), program(0, 50'000));
  EXPECT_THAT(result.conclusion,
              HasSubstr("rank 1 is slower in B: the other ranks wait 100.000 us"));
  EXPECT_THAT(result.conclusion, HasSubstr("its device idles 50.000 us longer"));
}

TEST(Diff, NamesARankThatBeginsLate) {
  const auto begins = [](std::int64_t late_ns) {
    std::vector<RankBuilder> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      const std::int64_t begin_ns = rank == 2 ? late_ns : 0;
      ranks.emplace_back(rank, "one").group("tp", {0, 1, 2});
      ranks.back().compute(begin_ns, begin_ns + 100'000);
      ranks.back().all_reduce(begin_ns + 100'000, late_ns + 150'000);
    }
    return recording_of(ranks);
  };
  EXPECT_THAT(diff(begins(0), begins(80'000)).conclusion,
              AllOf(HasSubstr("rank 2 is slower in B: the other ranks wait 160.000 us longer"),
                    HasSubstr("its device begins 80.000 us later than the first one does")));
}

TEST(Diff, NamesTheRankThatCaughtUp) {
  const RunDiff result = diff(program(300'000), program(0));
  EXPECT_THAT(result.conclusion, HasSubstr("rank 1 is faster in B: the other ranks wait 600.000 us "
                                           "shorter for it (A 600.000 us, B 0.000 us)"));
  EXPECT_THAT(result.conclusion, HasSubstr("its compute takes 300.000 us shorter"));
}

TEST(Diff, OfCategoriesIsExactPerRankAndOnAverage) {
  const RunDiff result = diff(program(0), program(300'000));
  EXPECT_EQ(change_of(result, 1, "compute").a_ns, 400'000);
  EXPECT_EQ(change_of(result, 1, "compute").b_ns, 700'000);
  EXPECT_EQ(change_of(result, 0, "exposed_comm").a_ns, 110'000);
  EXPECT_EQ(change_of(result, 0, "exposed_comm").delta_ns(), 300'000);
  EXPECT_EQ(change_of(result, -1, "compute").delta_ns(), 100'000);
  EXPECT_EQ(change_of(result, -1, "exposed_comm").delta_ns(), 200'000);
  EXPECT_EQ(change_of(result, -1, "span").delta_ns(), 300'000);
  EXPECT_EQ(change_of(result, -1, "idle").delta_ns(), 0);
  // The means first, each the largest change first.
  ASSERT_EQ(result.categories.size(), 24U);
  EXPECT_EQ(result.categories[0].category, "span");
  EXPECT_EQ(result.categories[1].category, "exposed_comm");
  EXPECT_EQ(result.categories[2].category, "compute");
  EXPECT_EQ(result.categories[6].rank, 0);
}

TEST(Diff, OfKernelsAndCollectivesIsLargestFirstWithoutWhatIsEqual) {
  const RunDiff result = diff(program(0), program(300'000));
  ASSERT_EQ(result.kernels.size(), 2U) << "gemm is equal";
  EXPECT_EQ(result.kernels[0].name, "ncclDevKernel_allreduce");
  EXPECT_EQ(result.kernels[0].a_count, 6);
  EXPECT_EQ(result.kernels[0].b_count, 6);
  EXPECT_EQ(result.kernels[0].total.a_ns, 330'000);
  EXPECT_EQ(result.kernels[0].total.delta_ns(), 600'000);
  EXPECT_EQ(result.kernels[1].name, "attention");
  EXPECT_EQ(result.kernels[1].total.delta_ns(), 300'000);
  ASSERT_EQ(result.collectives.size(), 1U) << "the small one is equal";
  EXPECT_EQ(result.collectives[0].kind, "all_reduce");
  EXPECT_EQ(result.collectives[0].group, "tp");
  EXPECT_EQ(result.collectives[0].bytes, 16384);
  EXPECT_EQ(result.collectives[0].a_count, 3);
  EXPECT_EQ(result.collectives[0].total.delta_ns(), 600'000);
  EXPECT_EQ(result.collectives[0].wait.a_ns, 0);
  EXPECT_EQ(result.collectives[0].wait.b_ns, 600'000);
}

TEST(Diff, OfEqualRunsSaysSo) {
  const RunDiff result = diff(program(1000), program(1000));
  EXPECT_EQ(result.conclusion, "nothing changes by more than 1 % of the window");
  EXPECT_THAT(result.kernels, IsEmpty());
  EXPECT_THAT(result.collectives, IsEmpty());
}

TEST(Diff, WithoutWaitsNamesTheCategory) {
  const auto one = [](std::int64_t compute_ns) {
    return recording_of({RankBuilder{0}.compute(0, compute_ns).copy(compute_ns + 50, 2'000'000)});
  };
  const RunDiff result = diff(one(1'000'000), one(1'300'000));
  EXPECT_THAT(result.conclusion, HasSubstr("the window of B is 0.000 us longer"));
  EXPECT_THAT(result.conclusion, HasSubstr("compute, 300.000 us longer"));
}

TEST(Diff, WithoutMatchesNamesTheRankButNoWait) {
  const auto unnamed = [](std::int64_t late_ns) {
    std::vector<RankBuilder> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.emplace_back(rank)
          .compute(0, 1000 + (rank == 2 ? late_ns : 0))
          .nccl("ncclDevKernel_AllReduce", 2000, 3000);
    return recording_of(ranks);
  };
  const RunDiff result = diff(unnamed(0), unnamed(500));
  EXPECT_THAT(result.conclusion, HasSubstr("rank 2 is slower in B: it computes 0.500 us longer"));
  EXPECT_THAT(result.conclusion, HasSubstr("who waits for it is not known"));
}

TEST(Diff, KeepsToItsSpans) {
  const Recording a = program(0), b = program(300'000);
  const Window first_half{"window", Span{0, 210'000}};
  const RunDiff result = diff_runs(a, spans_on(a, first_half), b, spans_on(b, first_half));
  EXPECT_EQ(result.conclusion, "nothing changes by more than 1 % of the window");
  EXPECT_EQ(change_of(result, 1, "compute").a_ns, 200'000);
  EXPECT_EQ(change_of(result, 1, "span").b_ns, 210'000);
}

TEST(Diff, StatesWhatCannotBeCompared) {
  Recording a = program(0), b = program(0);
  a.ranks.pop_back();
  b.ranks.erase(b.ranks.begin());
  b.ranks[0].timeline.steps.push_back({{0, 10}, 0});
  EXPECT_THAT(diff(a, b).warnings,
              ElementsAre("rank 0 only in A, rank 2 only in B: left out",
                          "A has 0 steps and B 1: their totals are of different amounts of work"));
  a.ranks.pop_back();
  EXPECT_THAT(test::refusal([&] { return diff(a, b); }),
              HasSubstr("no rank in common (A has 0, B 1, 2)"));
  EXPECT_THAT(test::refusal([] { return diff({}, {}); }), HasSubstr("A has none, B none"));
}

TEST(Diff, ComparesTwoSingleRanksWhateverTheirNumbers) {
  Recording a = program(0), b = program(0);
  a.ranks.resize(1);
  b.ranks.erase(b.ranks.begin(), b.ranks.begin() + 2);
  const RunDiff result = diff(a, b);
  EXPECT_THAT(result.warnings, ElementsAre("A is rank 0 and B rank 2: they are compared as one"));
  EXPECT_EQ(change_of(result, 0, "compute").a_ns, change_of(result, 0, "compute").b_ns);
  EXPECT_EQ(result.conclusion, "nothing changes by more than 1 % of the window");
}

}  // namespace
}  // namespace shardmark::bench
