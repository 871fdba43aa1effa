// Times of device events that cannot have been: which are found, what becomes of them, and what is
// said of them.

#include "profiler/impossible_times.hpp"

#include "profiler/account.hpp"
#include "tests/analyze/hand_made.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Ends of the events once they are corrected.
std::vector<std::int64_t> corrected_ends(Timeline timeline) {
  correct_impossible_times(timeline);
  std::vector<std::int64_t> ends;
  for (const DeviceEvent& event : timeline.events) ends.push_back(event.time.end_ns);
  return ends;
}

TEST(ImpossibleTimes, AnEventThatContainsALaterOneOfItsStreamIsCutWhereThatBegins) {
  Timeline timeline = HandMade{}
                          .kernel("corrupt", 100, 9'000'100)
                          .kernel("other stream", 105, 115, 9)
                          .kernel("next", 120, 130)
                          .made();
  EXPECT_THAT(impossible_times(timeline),
              ElementsAre(AllOf(HasSubstr("1 event ends after a later one of the same stream has"),
                                HasSubstr("--comm-rule auto cuts them"))));
  correct_impossible_times(timeline);
  EXPECT_EQ(timeline.events[0].time.end_ns, 120);
  EXPECT_EQ(timeline.events[1].time.end_ns, 115);
  EXPECT_THAT(
      timeline.warnings,
      ElementsAre("1 event ends after a later one of the same stream has ended, which cannot "
                  "be: cut where that begins, by 8999.980 us in all, most of it corrupt on "
                  "stream 7 (9000.000 us, 0.020 us left)"));
  EXPECT_THAT(impossible_times(timeline), IsEmpty());
}

TEST(ImpossibleTimes, OverlapWithALaterOneThatEndsLaterIsBelieved) {
  EXPECT_THAT(corrected_ends(HandMade{}.kernel("first", 100, 125).kernel("early", 120, 130).made()),
              ElementsAre(125, 130));
  EXPECT_THAT(corrected_ends(HandMade{}.kernel("first", 100, 130).kernel("early", 120, 130).made()),
              ElementsAre(130, 130));
}

TEST(ImpossibleTimes, AllThatContainALaterOneAreCut) {
  // The first two overlap, which is usual; both end after the third has.
  EXPECT_THAT(corrected_ends(HandMade{}
                                 .kernel("a", 0, 100)
                                 .kernel("b", 50, 120)
                                 .kernel("c", 60, 90)
                                 .kernel("d", 95, 110)
                                 .made()),
              ElementsAre(60, 60, 90, 110));
  // Not the next one but the one after that.
  EXPECT_THAT(corrected_ends(
                  HandMade{}.kernel("a", 0, 100).kernel("b", 10, 105).kernel("c", 20, 50).made()),
              ElementsAre(20, 20, 50));
}

TEST(ImpossibleTimes, StreamsOfOneNumberInTwoContextsAreTwo) {
  EXPECT_THAT(
      corrected_ends(HandMade{}.kernel("a", 100, 1000).kernel("b", 200, 300).context(1).made()),
      ElementsAre(1000, 300));
}

TEST(ImpossibleTimes, WorkWithoutAStreamIsBelieved) {
  EXPECT_THAT(
      corrected_ends(HandMade{}.kernel("a", 100, 1000, -1).kernel("b", 200, 300, -1).made()),
      ElementsAre(1000, 300));
}

TEST(ImpossibleTimes, NodesOfAGraphRunSideBySideOnOneStream) {
  EXPECT_THAT(corrected_ends(HandMade{}
                                 .kernel("all_reduce", 10, 110)
                                 .of_graph()
                                 .kernel("a", 20, 30)
                                 .of_graph()
                                 .kernel("b", 40, 50)
                                 .of_graph()
                                 .kernel("behind", 120, 130)
                                 .made()),
              ElementsAre(110, 30, 50, 130));
  EXPECT_THAT(
      corrected_ends(HandMade{}.kernel("before", 10, 110).kernel("node", 20, 30).of_graph().made()),
      ElementsAre(110, 30));
}

TEST(ImpossibleTimes, TracesOfOursAreBelieved) {
  Timeline timeline = HandMade{}.kernel("a", 0, 100).kernel("b", 10, 20).made();
  timeline.format = "shardmark";
  EXPECT_THAT(impossible_times(timeline), IsEmpty());
  EXPECT_THAT(corrected_ends(timeline), ElementsAre(100, 20));
}

TEST(ImpossibleTimes, EventsWithoutTimesAreLeftOut) {
  constexpr std::int64_t second = 1'000'000'000;
  Timeline timeline = HandMade{}
                          .kernel("no time", 0, 0)
                          .kernel("no start", 0, 7)
                          .kernel("gemm", 3 * second, 3 * second + 100)
                          .made();
  EXPECT_THAT(impossible_times(timeline), ElementsAre(HasSubstr("2 events start at time 0")));
  correct_impossible_times(timeline);
  const auto whole = account(timeline, classify(timeline, CommRule::automatic, {}), {"trace", {}});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->span_ns, 100);
  EXPECT_THAT(timeline.warnings, ElementsAre("2 events at time 0 are left out: their times could "
                                             "not be collected"));
  EXPECT_THAT(impossible_times(timeline), IsEmpty());
}

TEST(ImpossibleTimes, OneEventIsOneEvent) {
  Timeline timeline =
      HandMade{}.kernel("no time", 0, 0).kernel("gemm", 5'000'000'000, 5'000'000'100).made();
  correct_impossible_times(timeline);
  EXPECT_THAT(timeline.warnings,
              ElementsAre("1 event at time 0 is left out: its time could not be collected"));
}

TEST(ImpossibleTimes, ATraceThatBeginsAtZeroStays) {
  Timeline timeline = HandMade{}.kernel("first", 0, 10).kernel("next", 12, 20).made();
  EXPECT_THAT(impossible_times(timeline), IsEmpty());
  correct_impossible_times(timeline);
  EXPECT_EQ(timeline.events.size(), 2U);
  EXPECT_THAT(timeline.warnings, IsEmpty());
}

TEST(ImpossibleTimes, SumsBeyondAllBoundsDoNotOverflow) {
  constexpr std::int64_t most = std::int64_t{1} << 61;
  HandMade made;
  for (int stream = 1; stream < 6; ++stream)
    made.kernel("endless", -most, most, stream).kernel("next", 0, 1, stream);
  EXPECT_THAT(impossible_times(made.made()), ElementsAre(HasSubstr("5 events end")));
}

}  // namespace
}  // namespace shardmark
