// What is made of several files: their ranks, what is missing, what does not belong together.

#include "bench/analyze/recording.hpp"

#include "core/error.hpp"
#include "tests/analyze/hand_made.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Recorded = shardmark::Timeline;

/// A rank that computes from 1000 to 2000 ns, and what its file says of it.
Recorded of_rank(int rank, const std::string& file = "", int world_size = 0) {
  Recorded timeline = HandMade{}.kernel("gemm", 1000, 2000).made();
  timeline.rank = rank;
  timeline.file = file.empty() ? message("file", rank) : file;
  timeline.world_size = world_size;
  timeline.format = "Kineto";
  return timeline;
}
Recording make(std::vector<Recorded> timelines, std::vector<std::string> errors = {}) {
  return make_recording(std::move(timelines), CommRule::automatic, {}, std::move(errors));
}
std::vector<int> ranks_of(const Recording& recording) {
  std::vector<int> ranks;
  for (const RankRecording& rank : recording.ranks) ranks.push_back(rank.timeline.rank);
  return ranks;
}

TEST(Recording, RanksAreSortedAndTheirEventsClassified) {
  Recorded second = HandMade{}.kernel("ncclDevKernel_AllReduce", 5, 9).kernel("gemm", 1, 3).made();
  second.rank = 1;
  const Recording recording = make({second, of_rank(0)});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1));
  EXPECT_EQ(recording.world_size, 2);
  EXPECT_THAT(recording.missing_ranks, IsEmpty());
  EXPECT_THAT(recording.ranks[1].classes,
              ElementsAre(WorkClass::compute, WorkClass::communication));
}

TEST(Recording, NothingIsARecordingWithoutRanks) {
  const Recording recording = make({}, {"broken.json is no recording"});
  EXPECT_THAT(recording.ranks, IsEmpty());
  EXPECT_EQ(recording.world_size, 0);
  EXPECT_THAT(recording.errors, ElementsAre("broken.json is no recording"));
}

TEST(Recording, FilesWithoutARankGetTheLowestFreeNumbers) {
  const Recording recording = make({of_rank(-1, "a"), of_rank(1, "b"), of_rank(-1, "c")});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1, 2));
  EXPECT_EQ(recording.ranks[0].timeline.file, "a");
  EXPECT_EQ(recording.ranks[2].timeline.file, "c");
  EXPECT_THAT(recording.warnings, ElementsAre(AllOf(HasSubstr("2 recordings do not say"),
                                                    HasSubstr("taken for rank 0, 2"))));
}

TEST(Recording, OneFileWithoutARankIsRankZeroWithoutAWord) {
  const Recording recording = make({of_rank(-1)});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0));
  EXPECT_THAT(recording.warnings, IsEmpty());
}

TEST(Recording, OnlyTheFirstFileOfARankCounts) {
  const Recording recording = make({of_rank(1, "a"), of_rank(0, "b"), of_rank(1, "c")});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1));
  EXPECT_EQ(recording.ranks[1].timeline.file, "a");
  EXPECT_THAT(recording.errors, ElementsAre("c is left out: it is of rank 1, as is a"));
}

TEST(Recording, OfAFileWithSeveralRanksOnlyTheSecondOneOfARankIsLeftOut) {
  const Recording recording = make({of_rank(0, "a"), of_rank(0, "b"), of_rank(1, "b")});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1));
  EXPECT_THAT(recording.errors, ElementsAre("rank 0 of b is left out: a has one, too"));
}

TEST(Recording, ExportsOfSeveralDevicesAreNodes) {
  std::vector<Recorded> timelines;
  for (const char* file : {"node_a", "node_b"})
    for (int device = 0; device < 2; ++device) {
      timelines.push_back(of_rank(device, file));
      timelines.back().format = "Nsight Systems 3.25";
    }
  const Recording recording = make(timelines);
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(recording.ranks[2].timeline.file, "node_b");
  EXPECT_THAT(recording.errors, IsEmpty());
  EXPECT_THAT(recording.warnings, ElementsAre(HasSubstr("2 exports have several devices")));
  // One per rank tells its rank itself.
  timelines.erase(timelines.begin() + 2);
  EXPECT_THAT(make(timelines).errors, SizeIs(1));
}

TEST(Recording, MissingRanksAreStated) {
  const Recording recording = make({of_rank(1, "", 4), of_rank(3, "", 4)});
  EXPECT_EQ(recording.world_size, 4);
  EXPECT_THAT(recording.missing_ranks, ElementsAre(0, 2));
  EXPECT_THAT(recording.warnings, ElementsAre("2 of 4 ranks have no recording: 0, 2"));
}

TEST(Recording, TheWorldHoldsAllRanksAndMembersOfGroups) {
  EXPECT_EQ(make({of_rank(7)}).world_size, 8);
  Recorded timeline = of_rank(0);
  timeline.groups.emplace_back().ranks = {0, 5};
  EXPECT_EQ(make({timeline}).world_size, 6);
  timeline.groups.emplace_back().size = 16;
  EXPECT_EQ(make({timeline}).world_size, 16);
}

TEST(Recording, NumbersBeyondAnyMachineAreNotBelieved) {
  Recorded timeline = of_rank(2147483647, "a", 2147483647);
  timeline.groups.emplace_back().ranks = {2147483647};
  timeline.groups.back().size = 2147483647;
  const Recording recording = make({timeline});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0));
  EXPECT_EQ(recording.world_size, 1);
}

TEST(Recording, FilesThatBreakOffAreErrorsAndCount) {
  Recorded timeline = of_rank(0, "a");
  timeline.cut = "truncated at byte 99";
  const Recording recording = make({timeline});
  EXPECT_THAT(recording.ranks, SizeIs(1));
  EXPECT_THAT(recording.errors,
              ElementsAre(AllOf(HasSubstr("a breaks off"), HasSubstr("truncated at byte 99"))));
  Recorded other = timeline;  // of the same file
  other.rank = 1;
  EXPECT_THAT(make({timeline, other}).errors, SizeIs(1));
}

TEST(Recording, BrokenEventsAreErrorsAndTheRestCounts) {
  Recorded timeline = of_rank(0, "a");
  timeline.faults = {"1 event without readable text or time left out, at byte 5: it has no ts"};
  EXPECT_THAT(make({timeline}).errors,
              ElementsAre("a: 1 event without readable text or time left out, at byte 5: it has no "
                          "ts; the rest is analysed"));
}

TEST(Recording, RanksWithoutGpuWorkAreReportedAndKept) {
  Recorded timeline = of_rank(1);
  timeline.events.clear();
  const Recording recording = make({of_rank(0), timeline});
  EXPECT_THAT(ranks_of(recording), ElementsAre(0, 1));
  EXPECT_THAT(recording.warnings, ElementsAre("rank 1 has no GPU work (file1)"));
}

TEST(Recording, RanksOfWorldsOfDifferentSizesAreReported) {
  EXPECT_THAT(make({of_rank(0, "", 2), of_rank(1, "", 4)}).warnings,
              Contains(AllOf(HasSubstr("rank 0 (file0) and rank 1 (file1) seem to be of different "
                                       "jobs"),
                             HasSubstr("2 and 4 ranks"))));
}

TEST(Recording, RanksWhoseWorldHasDifferentNamesAreReported) {
  const auto with_groups = [](int rank, const std::string& world, const std::string& other) {
    Recorded timeline = of_rank(rank, "", 2);
    for (const auto& [name, size] : {std::pair{world, 2}, std::pair{other, 1}}) {
      timeline.groups.emplace_back().name = name;
      timeline.groups.back().size = size;
    }
    return timeline;
  };
  EXPECT_THAT(make({with_groups(0, "world_a", "tp0"), with_groups(1, "world_b", "tp0")}).warnings,
              ElementsAre(HasSubstr("called world_a and world_b")));
  // Groups of some ranks may differ.
  EXPECT_THAT(make({with_groups(0, "world_a", "tp0"), with_groups(1, "world_a", "tp1")}).warnings,
              IsEmpty());
}

TEST(Recording, RanksThatNeverRanTogetherAreReported) {
  Recorded late = HandMade{}.kernel("gemm", 3'000'002'000, 3'000'003'000).made();
  late.rank = 1;
  EXPECT_THAT(make({of_rank(0), late}).warnings,
              ElementsAre(AllOf(HasSubstr("different jobs"),
                                HasSubstr("one ends 3 s before the other begins"))));
}

TEST(Recording, RanksWhoseClocksCollectivesAlignAreOfOneJob) {
  const auto with_all_reduces = [](int rank, std::int64_t ahead_ns) {
    HandMade made;
    for (const std::int64_t start : {1000, 4000, 9000}) {
      made.kernel("gemm", ahead_ns + start - 900, ahead_ns + start);
      made.kernel("ncclDevKernel_AllReduce", ahead_ns + start, ahead_ns + start + 500);
      made.call("allreduce");
    }
    Recorded timeline = made.made();
    timeline.groups.push_back({"7", "", {0, 1}, 2});
    for (CommunicationCall& call : timeline.calls) call.group = 0;
    timeline.rank = rank;
    timeline.file = message("host", rank);
    return timeline;
  };
  EXPECT_THAT(make({with_all_reduces(0, 0), with_all_reduces(1, 1'000'000'000)}).warnings,
              IsEmpty());
  Recorded unconnected = with_all_reduces(1, 1'000'000'000);
  unconnected.groups.clear();
  EXPECT_THAT(make({with_all_reduces(0, 0), unconnected}).warnings,
              ElementsAre(HasSubstr("no collectives align their clocks")));
}

TEST(Recording, DevicesOfOneFileMayTakeTurns) {
  Recorded second = HandMade{}.kernel("gemm", 2100, 3000).made();
  second.rank = 1;
  second.file = "file0";
  EXPECT_THAT(make({of_rank(0), second}).warnings, IsEmpty());
}

TEST(Recording, ARankBeyondItsWorldIsReported) {
  EXPECT_THAT(make({of_rank(9, "a", 8)}).warnings,
              Contains("there is a rank 9, but a says that the world has 8: one of the two is "
                       "wrong"));
}

TEST(Recording, TimesInAnotherUnitAreReported) {
  const auto lasting = [](int rank, std::int64_t end_ns) {
    Recorded timeline = HandMade{}.kernel("gemm", 0, 10).kernel("gemm", end_ns - 5, end_ns).made();
    timeline.rank = rank;
    return timeline;
  };
  EXPECT_THAT(
      make({lasting(0, 1'000'000), lasting(1, 1'100'000), lasting(2, 900'000'000)}).warnings,
      ElementsAre(AllOf(HasSubstr("rank 2"), HasSubstr("900 ms and most others 1.1 ms"),
                        HasSubstr("smaller unit"))));
  EXPECT_THAT(make({lasting(0, 1'000'000), lasting(1, 1'100'000), lasting(2, 1'000)}).warnings,
              ElementsAre(AllOf(HasSubstr("rank 2"), HasSubstr("larger unit"))));
  EXPECT_THAT(make({lasting(0, 1'000'000), lasting(1, 50'000'000)}).warnings, IsEmpty());
}

TEST(Recording, ImpossibleTimesAreCorrectedUnlessTheRuleTakesFilesAsTheyAre) {
  // The first kernel lasts into those behind it on its stream.
  Recorded timeline =
      HandMade{}.kernel("gemm", 0, 1000).kernel("gemm", 10, 20).kernel("gemm", 30, 40).made();
  timeline.rank = 0;
  const auto end_of_first = [&](CommRule rule) {
    return make_recording({timeline}, rule, {}, {}).ranks[0].timeline.events[0].time.end_ns;
  };
  EXPECT_EQ(end_of_first(CommRule::automatic), 10);
  EXPECT_EQ(end_of_first(CommRule::nccl), 1000);
  timeline.format = "shardmark";
  EXPECT_EQ(end_of_first(CommRule::automatic), 1000);
}

TEST(Recording, TracesOfAResumedRunFollowEachOther) {
  const auto launch = [](int rank, const std::string& file, std::int64_t end_ns) {
    Recorded timeline = HandMade{}
                            .kernel("ncclDevKernel_AllReduce", 100, end_ns)
                            .call("allreduce")
                            .step("ProfilerStep#0", 0, end_ns + 50)
                            .made();
    timeline.ranges.push_back({{0, end_ns}, 0});
    timeline.groups.emplace_back().name = file.ends_with("-2.json.gz") ? "tp[0,1]" : "dp[0,1]";
    timeline.calls[0].group = 0;
    timeline.rank = rank;
    timeline.file = "run/" + file;
    timeline.format = "shardmark";
    return timeline;
  };
  const Recording recording =
      make({launch(0, "trace.json.gz", 500), launch(1, "trace.json.gz", 700),
            launch(0, "trace-2.json.gz", 300), launch(1, "trace-2.json.gz", 400)});
  EXPECT_THAT(recording.errors, IsEmpty());
  ASSERT_THAT(ranks_of(recording), ElementsAre(0, 1));
  const std::int64_t second = 750 + 1'000'000;  // behind the longest rank's step
  for (const RankRecording& rank : recording.ranks) {
    const Recorded& timeline = rank.timeline;
    ASSERT_THAT(timeline.events, SizeIs(2));
    EXPECT_EQ(timeline.events[0].time.start_ns, 100);
    EXPECT_EQ(timeline.events[1].time.start_ns, second + 100);
    EXPECT_EQ(timeline.names.at(timeline.events[1].name), "ncclDevKernel_AllReduce");
    ASSERT_THAT(timeline.steps, SizeIs(2));
    EXPECT_EQ(timeline.names.at(timeline.steps[0].name), "ProfilerStep#0");
    EXPECT_EQ(timeline.names.at(timeline.steps[1].name), "ProfilerStep#1");
    EXPECT_EQ(timeline.steps[1].time.start_ns, second);
    EXPECT_THAT(timeline.ranges, SizeIs(2));
    const CommunicationCall& call = timeline.calls.at(timeline.events[1].call);
    EXPECT_EQ(timeline.groups.at(call.group).name, "tp[0,1]");
  }
}

TEST(Recording, OwnTracesOfDifferentRunsAreNotJoined) {
  Recorded a = of_rank(0, "one/trace.json"), b = of_rank(0, "two/trace.json");
  Recorded c = of_rank(0, "one/copy.json");
  a.format = b.format = c.format = "shardmark";
  const Recording recording = make({a, b, c});
  EXPECT_THAT(recording.ranks, SizeIs(1));
  EXPECT_THAT(recording.errors, SizeIs(2));
}

TEST(Recording, PatternsThatAreNoExpressionsAreRefused) {
  EXPECT_THROW(make_recording({of_rank(0)}, CommRule::automatic, {"("}, {}), InputError);
}

}  // namespace
}  // namespace shardmark::bench
