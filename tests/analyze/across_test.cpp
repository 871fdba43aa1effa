#include "bench/analyze/across.hpp"

#include "tests/analyze/collectives_recording.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Clocks of the three ranks read this much when the first one reads 0.
constexpr std::int64_t ahead_ns[] = {0, 1'000'000, -500'000};

/// Three ranks whose all-reduces begin at `arrivals[i]` and end at `ends[i]`, in true time.
struct AllReduces {
  std::vector<std::vector<std::int64_t>> arrivals;
  std::vector<std::int64_t> ends;
};
/// Late once each: rank 1, rank 0, rank 2, by 100, 100 and 50 ns of transfer.
const AllReduces each_late_once{{{100, 300, 200}, {1500, 1000, 1200}, {2000, 2000, 2500}},
                                {400, 1600, 2550}};

std::vector<RankBuilder> builders(const AllReduces& run) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    RankBuilder& builder = ranks.emplace_back(rank).group("world", {0, 1, 2});
    for (std::size_t i = 0; i < run.ends.size(); ++i)
      builder.all_reduce(run.arrivals[i][at] + ahead_ns[at], run.ends[i] + ahead_ns[at]);
  }
  return ranks;
}

AcrossRanks across(const Recording& recording, const Window& window = whole_trace) {
  const std::optional<AcrossRanks> result = analyse_across(recording, window);
  EXPECT_TRUE(result.has_value());
  return result.value_or(AcrossRanks{});
}

template <class Member>
std::vector<std::int64_t> of_ranks(const AcrossRanks& result, Member member) {
  std::vector<std::int64_t> values;
  for (const RankAcross& rank : result.ranks) values.push_back(rank.*member);
  return values;
}

std::vector<std::string> names_of(const std::vector<StepAcross>& steps) {
  std::vector<std::string> names;
  for (const StepAcross& step : steps) names.push_back(step.name);
  return names;
}

std::vector<int> critical_of(const std::vector<StepAcross>& steps) {
  std::vector<int> ranks;
  for (const StepAcross& step : steps) ranks.push_back(step.critical_rank);
  return ranks;
}

TEST(Clocks, AreAlignedWithTheBoundThatCollectivesLeave) {
  const ClockAlignment clocks = across(recording_of(builders(each_late_once))).clocks;
  EXPECT_THAT(clocks.offset_ns, ElementsAre(0, -1'000'000, 500'000));
  // Rank 1 came last 100 ns before an end, and so did rank 0. Rank 2 came 50 ns before one; rank 0
  // 100 ns before the ends of both.
  EXPECT_THAT(clocks.bound_ns, ElementsAre(0, 100, 100));
  EXPECT_THAT(clocks.spread_ns, ElementsAre(0, 0, 0));
  EXPECT_EQ(clocks.num_matched, 3);
}

TEST(Clocks, OfARankThatIsAlwaysLateAreRightWithALargeBound) {
  const AllReduces late{{{100, 700, 100}, {1100, 1800, 1200}, {2100, 2600, 2000}},
                        {750, 1850, 2650}};
  const ClockAlignment clocks = across(recording_of(builders(late))).clocks;
  EXPECT_EQ(clocks.offset_ns[1], -1'000'000);
  // Rank 0 had begun at least 550 ns before each end, so rank 1 may have been that early.
  EXPECT_EQ(clocks.bound_ns[1], 550);
}

TEST(Clocks, AreCarriedOverFromGroupToGroup) {
  RankBuilder first{0}, middle{1}, last{2}, apart{3};
  first.group("a", {0, 1}).all_reduce(1000, 1010).all_reduce(1990, 2010);
  middle.group("a", {0, 1}).all_reduce(1'000'900, 1'001'010).all_reduce(1'002'000, 1'002'010);
  middle.group("b", {1, 2}).all_reduce(1'003'000, 1'003'030).all_reduce(1'004'000, 1'004'020);
  last.group("b", {1, 2}).all_reduce(3010, 3030).all_reduce(4000, 4020);
  apart.group("c", {3}).all_reduce(0, 7);
  const AcrossRanks result = across(recording_of({first, middle, last, apart}));
  EXPECT_THAT(result.clocks.offset_ns, ElementsAre(0, -1'000'000, 0, 0));
  // Rank 1: 10 ns both ways. Rank 2: 20 ns more.
  EXPECT_THAT(result.clocks.bound_ns, ElementsAre(0, 10, 30, -1));
  EXPECT_FALSE(result.clocks.knows(3));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("connects rank 3 to rank 0")));
}

TEST(Clocks, OfOneFileAreOne) {
  RankBuilder first{0, "one"}, second{1, "one"}, apart{2, "one"};
  first.group("a", {0, 1}).all_reduce(100, 200).all_reduce(1000, 1100);
  second.group("a", {0, 1}).all_reduce(100, 230).all_reduce(1000, 1130);
  Recording recording = recording_of({first, second, apart});
  const AcrossRanks result = across(recording);
  EXPECT_THAT(result.clocks.offset_ns, ElementsAre(0, 0, 0));
  EXPECT_THAT(result.clocks.bound_ns, ElementsAre(0, 0, 0));
  EXPECT_THAT(result.warnings, IsEmpty());
  for (RankRecording& rank : recording.ranks) rank.timeline.format = "shardmark";
  const AcrossRanks ours = across(recording);
  EXPECT_THAT(ours.clocks.offset_ns, ElementsAre(0, 0, 0));
  EXPECT_THAT(ours.clocks.bound_ns, ElementsAre(0, 130, -1));
}

TEST(Clocks, ThatContradictEachOtherHaveNoBound) {
  RankBuilder first{0, "one"}, second{1, "one"};
  first.group("a", {0, 1}).all_reduce(100, 200).all_reduce(5000, 5100);
  second.group("a", {0, 1}).all_reduce(301, 400).all_reduce(5000, 5100);
  Recording recording = recording_of({first, second});
  for (RankRecording& rank : recording.ranks) rank.timeline.format = "shardmark";
  const AcrossRanks result = across(recording);
  EXPECT_THAT(result.clocks.bound_ns, ElementsAre(0, -1));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("drift or jump")));
  EXPECT_EQ(result.collectives.size(), 2U) << "one recorder begins with the same everywhere";
}

TEST(Across, ArrivalWaitAndTransferAreExact) {
  const AcrossRanks result = across(recording_of(builders(each_late_once)));
  EXPECT_THAT(result.warnings, IsEmpty());
  ASSERT_EQ(result.collectives.size(), 3U);
  const MatchedCollective& first = result.collectives[0];
  EXPECT_EQ(first.kind, "all_reduce");
  EXPECT_EQ(first.group, "world");
  EXPECT_EQ(first.number, 0);
  EXPECT_EQ(first.bytes, 1024);
  EXPECT_THAT(first.ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(first.arrival_ns, ElementsAre(100, 300, 200));
  EXPECT_THAT(first.duration_ns, ElementsAre(300, 100, 200));
  EXPECT_TRUE(first.complete);
  EXPECT_EQ(first.transfer_ns, 100);
  EXPECT_EQ(first.last_arriver, 1);
  EXPECT_EQ(result.collectives[1].last_arriver, 0);
  EXPECT_EQ(result.collectives[2].last_arriver, 2);
  EXPECT_THAT(of_ranks(result, &RankAcross::wait_ns),
              ElementsAre(200 + 0 + 500, 0 + 500 + 500, 100 + 300));
  EXPECT_THAT(of_ranks(result, &RankAcross::transfer_ns), ElementsAre(250, 250, 250));
  EXPECT_THAT(of_ranks(result, &RankAcross::num_last), ElementsAre(1, 1, 1));
  EXPECT_THAT(of_ranks(result, &RankAcross::caused_wait_ns), ElementsAre(800, 300, 1000));
  EXPECT_THAT(result.steps, IsEmpty());
  EXPECT_EQ(result.critical_rank, 2);
}

TEST(Across, KeepsToTheWindowButCountsOverTheWholeTrace) {
  const AcrossRanks result =
      across(recording_of(builders(each_late_once)), {"window", Span{1500, 1900}});
  ASSERT_EQ(result.collectives.size(), 1U);
  EXPECT_EQ(result.collectives[0].number, 1);
  EXPECT_THAT(of_ranks(result, &RankAcross::wait_ns), ElementsAre(0, 500, 300));
  EXPECT_EQ(result.clocks.num_matched, 3);
}

TEST(Across, FindsTheCriticalRankOfEachStep) {
  std::vector<RankBuilder> ranks = builders(each_late_once);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::int64_t ahead = ahead_ns[rank];
    ranks[rank].step("ProfilerStep#7", ahead, 1450 + ahead);
    ranks[rank].step("ProfilerStep#8", 1450 + ahead, 1950 + ahead);
    if (rank != 1) ranks[rank].step("ProfilerStep#9", 1950 + ahead, 2900 + ahead);
    ranks[rank].step("ProfilerStep#10", 2900 + ahead, 3500 + ahead);
    ranks[rank].step("ProfilerStep#11", 3500 + ahead, 4000 + ahead);
    ranks[rank].compute(2900 + ahead, 2900 + ahead + 100 * static_cast<std::int64_t>(rank));
  }
  const AcrossRanks result = across(recording_of(ranks));
  EXPECT_THAT(names_of(result.steps),
              ElementsAre("ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9", "ProfilerStep#10",
                          "ProfilerStep#11"));
  EXPECT_THAT(critical_of(result.steps), ElementsAre(1, 0, 2, 2, -1))
      << "the last arrivers, then who computes longest, then nothing";
  const std::vector<RankAcross>& step_8 = result.steps[1].ranks;
  EXPECT_EQ(step_8[1].wait_ns, 500);
  EXPECT_EQ(step_8[2].wait_ns, 300);
  EXPECT_EQ(step_8[2].transfer_ns, 100);
  EXPECT_EQ(step_8[0].caused_wait_ns, 800);
  EXPECT_EQ(result.steps[3].ranks[2].compute_ns, 200);
}

TEST(Across, NoneOfEqualRanksIsCritical) {
  RankBuilder first{0}, second{1}, third{2};
  for (RankBuilder* rank : {&first, &second, &third})
    rank->group("world", {0, 1, 2}).compute(0, 100).all_reduce(100, 200).step("1", 0, 200);
  const AcrossRanks result = across(recording_of({first, second, third}));
  EXPECT_THAT(critical_of(result.steps), ElementsAre(-1));
  EXPECT_EQ(result.critical_rank, -1);
  third.compute(200, 201).step("2", 200, 300);
  EXPECT_EQ(across(recording_of({first, second, third})).critical_rank, -1)
      << "it has one step more, so their compute cannot be compared";
}

TEST(Across, AStepThatOtherRanksLackMakesNobodyCritical) {
  RankBuilder first{0}, second{1};
  first.step("1", 0, 100).compute(0, 50).step("2", 100, 300).compute(100, 300);
  second.step("1", 0, 100).compute(0, 60);
  const AcrossRanks result = across(recording_of({first, second}));
  EXPECT_THAT(critical_of(result.steps), ElementsAre(1, -1));
}

TEST(Across, StepsAreCutToTheWindow) {
  RankBuilder first{0}, second{1};
  first.step("1", 0, 100).compute(0, 100);
  second.step("1", 0, 100).compute(0, 60).compute(90, 100);
  const AcrossRanks result = across(recording_of({first, second}), {"window", Span{80, 100}});
  ASSERT_EQ(result.steps.size(), 1U);
  EXPECT_EQ(result.steps[0].ranks[0].compute_ns, 20);
  EXPECT_EQ(result.steps[0].ranks[1].compute_ns, 10);
}

TEST(Across, ComputeIsAUnion) {
  std::vector<RankBuilder> ranks = builders(each_late_once);
  ranks[0].compute(0, 100).compute(50, 150);
  ranks[1].compute(0, 300);
  ranks[2].compute(0, 200);
  EXPECT_THAT(of_ranks(across(recording_of(ranks)), &RankAcross::compute_ns),
              ElementsAre(150, 300, 200));
}

TEST(Across, InventsNothingForMembersWithoutFiles) {
  std::vector<RankBuilder> ranks = builders(each_late_once);
  ranks.pop_back();
  const AcrossRanks result = across(recording_of(ranks, 3));
  EXPECT_THAT(result.warnings,
              ElementsAre(HasSubstr("of group world rank 2 has no file, or no call in it")));
  ASSERT_EQ(result.collectives.size(), 3U);
  for (const MatchedCollective& collective : result.collectives) {
    EXPECT_FALSE(collective.complete);
    EXPECT_EQ(collective.transfer_ns, 0);
    EXPECT_EQ(collective.last_arriver, -1);
    EXPECT_EQ(collective.wait_ns(0), 0);
  }
  EXPECT_THAT(of_ranks(result, &RankAcross::wait_ns), ElementsAre(0, 0));
  EXPECT_EQ(result.clocks.offset_ns[1], -1'000'000) << "two members bound each other all the same";
  EXPECT_EQ(result.critical_rank, -1);
}

TEST(Across, NobodyIsLastWhereNobodyWaits) {
  RankBuilder first{0}, second{1}, third{2};
  for (RankBuilder* rank : {&first, &second, &third})
    rank->group("world", {0, 1, 2}).all_reduce(100, 200);
  const AcrossRanks result = across(recording_of({first, second, third}));
  ASSERT_EQ(result.collectives.size(), 1U);
  EXPECT_EQ(result.collectives[0].last_arriver, -1);
  EXPECT_EQ(result.collectives[0].transfer_ns, 100);
  EXPECT_THAT(of_ranks(result, &RankAcross::num_last), ElementsAre(0, 0, 0));
}

TEST(Across, BroadcastsHaveNeitherWaitNorBound) {
  RankBuilder first{0}, second{1}, third{2};
  for (RankBuilder* rank : {&first, &second, &third})
    rank->group("world", {0, 1, 2}).call("broadcast", 256, 100, 200);
  const AcrossRanks result = across(recording_of({first, second, third}));
  ASSERT_EQ(result.collectives.size(), 1U);
  EXPECT_FALSE(result.collectives[0].complete);
  EXPECT_THAT(result.clocks.bound_ns, ElementsAre(0, -1, -1));
}

TEST(Across, DifferentCollectivesOfOneNumberAreReported) {
  RankBuilder first{0}, second{1};
  first.group("g", {0, 1}).all_reduce(100, 200).call("allreduce", 9, 300, 400).all_reduce(500, 600);
  second.group("g", {0, 1}).all_reduce(100, 200).call("_allgather_base", 256, 300, 400);
  second.all_reduce(500, 600);
  const AcrossRanks result = across(recording_of({first, second}));
  EXPECT_EQ(result.collectives.size(), 1U);
  EXPECT_THAT(result.warnings,
              ElementsAre("group g, collective 1: rank 0 has all_reduce of 36 bytes, rank 1 "
                          "all_gather of 1024 bytes; from there on the group is not matched"));
}

TEST(Across, UnequalNumbersOfCollectivesAreReported) {
  RankBuilder first{0}, second{1};
  first.group("g", {0, 1}).all_reduce(100, 200).all_reduce(500, 600);
  second.group("g", {0, 1}).all_reduce(100, 200);
  const AcrossRanks result = across(recording_of({first, second}));
  EXPECT_EQ(result.collectives.size(), 1U);
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("ranks have 1 to 2 collectives")));
}

TEST(Across, FilesThatBeginWithDifferentCollectivesAreNotMatchedByOrder) {
  RankBuilder first{0}, second{1};
  first.group("g", {0, 1}).all_reduce(100, 110).all_reduce(200, 210).all_reduce(1000, 1010);
  second.group("g", {0, 1}).all_reduce(200, 210).all_reduce(1000, 1010).all_reduce(1300, 1310);
  const AcrossRanks result = across(recording_of({first, second}));
  EXPECT_THAT(result.collectives, IsEmpty());
  ASSERT_FALSE(result.warnings.empty());
  EXPECT_THAT(result.warnings[0], HasSubstr("do not begin with the same ones"));
}

TEST(Across, SequenceNumbersMatchWhatOrderWouldNot) {
  RankBuilder first{0}, second{1};
  first.group("g", {0, 1}).all_reduce(100, 110, 5).all_reduce(200, 210, 6);
  first.all_reduce(1000, 1010, 7);
  second.group("g", {0, 1}).all_reduce(190, 210, 6).all_reduce(1000, 1010, 7);
  second.all_reduce(1300, 1310, 8);
  const AcrossRanks result = across(recording_of({first, second}));
  ASSERT_EQ(result.collectives.size(), 2U);
  EXPECT_EQ(result.collectives[0].number, 6);
  EXPECT_EQ(result.collectives[0].last_arriver, 0);
  EXPECT_EQ(result.collectives[1].number, 7);
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("2 of 4 collectives are not in the files")));
}

TEST(Across, NumbersThatComeAgainDoNotCount) {
  RankBuilder first{0}, second{1};
  for (RankBuilder* rank : {&first, &second}) {
    rank->group("g", {0, 1}).all_reduce(100, 200, 3).all_reduce(300, 400, 4);
    rank->all_reduce(500, 600, 3).all_reduce(700, 800, 4);
  }
  const AcrossRanks result = across(recording_of({first, second}));
  ASSERT_EQ(result.collectives.size(), 4U);
  EXPECT_EQ(result.collectives[3].number, 3);
  EXPECT_THAT(result.collectives[3].arrival_ns, ElementsAre(700, 700));
}

TEST(Across, PartsOfOurOwnPlansAreOneCollective) {
  RankBuilder first{0, "one"}, second{1, "one"};
  first.group("g", {0, 1}).part(0, 100, 150).part(0, 180, 200).part(1, 300, 400);
  second.group("g", {0, 1}).part(0, 140, 200).part(1, 310, 400);
  Recording recording = recording_of({first, second});
  for (RankRecording& rank : recording.ranks) rank.timeline.format = "shardmark";
  const AcrossRanks result = across(recording);
  ASSERT_EQ(result.collectives.size(), 2U);
  EXPECT_THAT(result.collectives[0].duration_ns, ElementsAre(100, 60));
  EXPECT_EQ(result.collectives[0].last_arriver, 1);
  const auto rows = collective_rows(recording, whole_trace, {});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_DOUBLE_EQ(rows[0].total_us, 0.2);
}

TEST(Across, GroupsAreTheSameWhenTheirRanksAre) {
  RankBuilder first{0}, second{1}, third{2};
  first.group("17", {0, 1, 2}).all_reduce(100, 200);
  second.group("23", {0, 1, 2}).all_reduce(150, 200);
  third.group("23", {2, 1, 0}).all_reduce(150, 200);
  const AcrossRanks united = across(recording_of({first, second, third}));
  ASSERT_EQ(united.collectives.size(), 1U);
  EXPECT_TRUE(united.collectives[0].complete);
  // With two groups of the same ranks, names tell them apart.
  first.group("23", {0, 1, 2}).all_reduce(300, 400);
  const AcrossRanks apart = across(recording_of({first, second, third}));
  ASSERT_EQ(apart.collectives.size(), 1U);
  EXPECT_EQ(apart.collectives[0].group, "23");
  EXPECT_THAT(apart.warnings, ElementsAre(HasSubstr("of group 17 ranks 1, 2 have no file")));
}

TEST(Across, GroupsWithoutRanksGoByNameAndSize) {
  RankBuilder first{0}, second{1}, third{2};
  for (RankBuilder* rank : {&first, &second, &third}) {
    rank->group("g", {}, 3).all_reduce(100, 200);
    rank->group("h", {}).all_reduce(300, 400);
  }
  const AcrossRanks result = across(recording_of({first, second, third}));
  ASSERT_EQ(result.collectives.size(), 2U);
  EXPECT_TRUE(result.collectives[0].complete);
  EXPECT_FALSE(result.collectives[1].complete) << "nobody says who belongs to it";
}

TEST(Across, WithoutGroupsOnlyAWorldOfTwoIsMatched) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(rank).nccl("ncclDevKernel_AllReduce", 100, 200 + rank);
  const AcrossRanks three = across(recording_of(ranks));
  EXPECT_THAT(three.collectives, IsEmpty());
  EXPECT_THAT(three.warnings, testing::Contains(HasSubstr("name no group are not matched")));
  ranks.pop_back();
  Recording two = recording_of(ranks);
  EXPECT_THAT(across(two).collectives, IsEmpty()) << "no file says how large the world is";
  two.ranks[0].timeline.world_size = 2;
  const AcrossRanks both = across(two);
  ASSERT_EQ(both.collectives.size(), 1U);
  EXPECT_EQ(both.collectives[0].transfer_ns, 100);
  EXPECT_THAT(both.warnings, ElementsAre(HasSubstr("collectives join both")));
}

TEST(Across, MessagesAreNotCollectives) {
  RankBuilder first{0}, second{1};
  first.group("g", {0, 1}).message("send", 1, 100, 200).all_reduce(300, 400);
  second.group("g", {0, 1}).message("recv", 0, 100, 200).message("recv", 0, 210, 220);
  second.all_reduce(300, 400);
  const AcrossRanks result = across(recording_of({first, second}));
  ASSERT_EQ(result.collectives.size(), 1U);
  EXPECT_EQ(result.collectives[0].number, 0);
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(Across, OneRankOrNoneIsNothing) {
  EXPECT_FALSE(analyse_across({}, whole_trace));
  EXPECT_FALSE(analyse_across(recording_of({RankBuilder{0}.compute(0, 1)}), whole_trace));
  EXPECT_TRUE(analyse_across(recording_of({RankBuilder{0}, RankBuilder{1}}), whole_trace));
}

}  // namespace
}  // namespace shardmark::bench
