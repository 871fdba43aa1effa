#include "bench/analyze/stages.hpp"

#include "tests/analyze/collectives_recording.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Stages stages(const Recording& recording, const Window& window = whole_trace,
              const std::map<std::string, std::string>& axis_of = {}) {
  const auto across = analyse_across(recording, whole_trace);
  const ClockAlignment one{{0}, {0}, {0}, 0};
  return analyse_stages(recording, spans_on(recording, window), axis_of,
                        across ? across->clocks : one);
}

template <class Member>
auto of_rows(const Stages& result, Member member) {
  std::vector<std::decay_t<decltype(std::declval<StageRow>().*member)>> values;
  for (const StageRow& row : result.rows) values.push_back(row.*member);
  return values;
}

/// One microbatch forward through ranks 2, 0, 1, 100 ns of compute each; clocks read `ahead_ns`
/// more than the first one's, which only a collective over all of them tells. Receives begin early.
std::vector<RankBuilder> chain(std::int64_t ahead_ns) {
  RankBuilder first{2}, middle{0}, last{1};
  first.group("pipe", {2, 0, 1}, 3, "pp").compute(0 + ahead_ns, 100 + ahead_ns);
  first.message("send", 0, 100 + ahead_ns, 120 + ahead_ns);
  middle.group("pipe", {2, 0, 1}, 3, "pp").message("recv", 2, 0, 120).compute(120, 220);
  middle.message("send", 1, 220, 240);
  last.group("pipe", {2, 0, 1}, 3, "pp").message("recv", 0, 10 + ahead_ns, 240 + ahead_ns);
  last.compute(240 + ahead_ns, 330 + ahead_ns).copy(330 + ahead_ns, 340 + ahead_ns);
  for (RankBuilder* rank : {&first, &last})
    rank->group("all", {0, 1, 2}).all_reduce(340 + ahead_ns, 400 + ahead_ns);
  middle.group("all", {0, 1, 2}).all_reduce(340, 400);
  return {middle, last, first};
}

TEST(Stages, HaveTheBubbleOfTheCommonWindow) {
  for (const std::int64_t ahead_ns : {0, 7'000'000}) {
    const Stages result = stages(recording_of(chain(ahead_ns)));
    EXPECT_THAT(result.warnings, IsEmpty());
    EXPECT_THAT(of_rows(result, &StageRow::stage), ElementsAre(0, 1, 2));
    EXPECT_THAT(of_rows(result, &StageRow::rank), ElementsAre(2, 0, 1));
    EXPECT_THAT(of_rows(result, &StageRow::pipeline), ElementsAre(0, 0, 0));
    EXPECT_THAT(of_rows(result, &StageRow::num_messages), ElementsAre(1, 2, 1));
    EXPECT_THAT(of_rows(result, &StageRow::message_bytes), ElementsAre(1024, 2048, 1024));
    EXPECT_THAT(of_rows(result, &StageRow::message_ns), ElementsAre(20, 140, 230));
    EXPECT_THAT(of_rows(result, &StageRow::window_ns), ElementsAre(400, 400, 400));
    EXPECT_THAT(of_rows(result, &StageRow::compute_ns), ElementsAre(100, 100, 90));
    EXPECT_THAT(of_rows(result, &StageRow::collective_ns), ElementsAre(60, 60, 60));
    EXPECT_THAT(of_rows(result, &StageRow::copy_ns), ElementsAre(0, 0, 10));
    EXPECT_THAT(of_rows(result, &StageRow::bubble_ns), ElementsAre(240, 240, 240));
    EXPECT_THAT(of_rows(result, &StageRow::wait_ns), ElementsAre(20, 140, 230));
    EXPECT_THAT(of_rows(result, &StageRow::idle_ns), ElementsAre(220, 100, 10));
    EXPECT_THAT(of_rows(result, &StageRow::fill_ns), ElementsAre(0, 120, 240));
    EXPECT_THAT(of_rows(result, &StageRow::drain_ns), ElementsAre(240, 120, 0));
    EXPECT_THAT(of_rows(result, &StageRow::bubble_of_total), ElementsAre(0.6, 0.6, 0.6));
  }
}

TEST(Stages, KeepToTheWindow) {
  const Stages result = stages(recording_of(chain(0)), {"window", Span{100, 340}});
  EXPECT_THAT(of_rows(result, &StageRow::num_messages), ElementsAre(1, 2, 1)) << "also in part";
  EXPECT_THAT(of_rows(result, &StageRow::wait_ns), ElementsAre(20, 40, 140));
  EXPECT_THAT(of_rows(result, &StageRow::window_ns), ElementsAre(240, 240, 240));
  EXPECT_THAT(of_rows(result, &StageRow::compute_ns), ElementsAre(0, 100, 90));
}

TEST(Stages, OfATraceOfOursAreSummedOverItsRowsWithMessages) {
  RankBuilder first{0, "one"}, middle{1, "one"}, last{2, "one"};
  for (RankBuilder* rank : {&first, &middle, &last}) rank->group("pp", {0, 1, 2});
  // Row 0: ranks 0 and 1; row 1: all; row 2: none sends.
  for (RankBuilder* rank : {&first, &middle}) rank->step("ProfilerStep#0", 0, 100);
  for (RankBuilder* rank : {&first, &middle, &last}) rank->step("ProfilerStep#1", 1000, 1200);
  first.step("ProfilerStep#2", 5000, 6000).compute(5000, 5500);
  first.compute(0, 40)
      .message("send", 1, 40, 45)
      .compute(1000, 1080)
      .message("send", 1, 1080, 1090);
  middle.message("recv", 0, 5, 45).compute(45, 100).message("recv", 0, 1010, 1090);
  middle.compute(1090, 1130).message("send", 2, 1130, 1140);
  last.message("recv", 1, 1000, 1140).compute(1140, 1190);
  Recording recording = recording_of({first, middle, last});
  for (RankRecording& rank : recording.ranks) rank.timeline.format = "shardmark";
  const Stages result = stages(recording);
  EXPECT_THAT(of_rows(result, &StageRow::window_ns), ElementsAre(300, 300, 200));
  EXPECT_THAT(of_rows(result, &StageRow::compute_ns), ElementsAre(120, 95, 50));
  EXPECT_THAT(of_rows(result, &StageRow::wait_ns), ElementsAre(15, 130, 140));
  EXPECT_THAT(of_rows(result, &StageRow::idle_ns), ElementsAre(165, 75, 10));
}

TEST(Stages, AreInTheOrderOfPeersWhereTheGroupSaysNothing) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 6; ++rank)
    ranks.emplace_back(rank).group("0", {0, 1, 2, 3, 4, 5}, 6, "default_pg").compute(0, 50);
  // Two pipelines, 0 2 4 and 1 5 3.
  ranks[0].message("send", 2, 50, 60);
  ranks[2].message("recv", 0, 50, 60).message("send", 4, 60, 70);
  ranks[4].message("recv", 2, 60, 70);
  ranks[1].message("send", 5, 50, 60);
  ranks[5].message("recv", 1, 50, 60).message("send", 3, 60, 70);
  ranks[3].message("recv", 5, 60, 70);
  Recording recording = recording_of(ranks);
  for (RankRecording& rank : recording.ranks) rank.timeline.file = "one";
  const Stages result = stages(recording);
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_THAT(of_rows(result, &StageRow::rank), ElementsAre(0, 2, 4, 1, 5, 3));
  EXPECT_THAT(of_rows(result, &StageRow::pipeline), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(of_rows(result, &StageRow::stage), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Stages, OfARingBeginWithTheLowestRank) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(rank).group("pp", {}).message("send", (rank + 1) % 3, 0, 10);
  EXPECT_THAT(of_rows(stages(recording_of(ranks)), &StageRow::rank), ElementsAre(0, 1, 2));
}

TEST(Stages, OfOtherParallelismAreNone) {
  std::vector<RankBuilder> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(rank)
        .group("ring", {0, 1, 2}, 3, "cp")
        .message("send", (rank + 1) % 3, 0, 9);
  EXPECT_THAT(stages(recording_of(ranks)).rows, IsEmpty());
  EXPECT_EQ(stages(recording_of(ranks), whole_trace, {{"ring", "pp"}}).rows.size(), 3U);
  const Recording without_metadata =
      recording_of({RankBuilder{0}.nccl("ncclDevKernel_SendRecv", 0, 9), RankBuilder{1}});
  EXPECT_THAT(stages(without_metadata).rows, IsEmpty());
}

TEST(Stages, WithoutFilesAndClocksThatAreNotAlignedAreStated) {
  RankBuilder first{0}, last{2};
  first.group("pp", {0, 1, 2}).compute(0, 100).message("send", 1, 100, 110);
  last.group("pp", {0, 1, 2}).message("recv", 1, 0, 300).compute(300, 400);
  const Stages result = stages(recording_of({first, last}, 3));
  EXPECT_THAT(of_rows(result, &StageRow::stage), ElementsAre(0, 2));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("rank 1 has no file"),
                                           HasSubstr("clock of rank 2 is not aligned")));
}

TEST(Stages, OfOneRankAloneHaveAWindow) {
  const Stages result =
      stages(recording_of({RankBuilder{0}.group("pp", {}).message("send", 1, 0, 10)}));
  EXPECT_THAT(of_rows(result, &StageRow::bubble_ns), ElementsAre(10));
}

}  // namespace
}  // namespace shardmark::bench
