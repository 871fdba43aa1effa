#include "bench/analyze/unmatched.hpp"

#include "bench/analyze/time_text.hpp"
#include "tests/analyze/collectives_recording.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::analyze {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> sentences(const Recording& recording, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "traces");
  return unmatched_options(recording, parse_options(arguments));
}

/// Two ranks; the second's clock is 1000 ns ahead. Work from 5000 to 9000 ns of the first's.
Recording two_ranks() {
  RankBuilder first{0}, second{1};
  first.group("7", {0, 1}, 2, "tensor parallel").compute(5000, 6000, "my_exchange");
  first.all_reduce(7000, 8000);
  second.group("", {0, 1}).all_reduce(8000, 10'000);
  return recording_of({first, second});
}

TEST(Unmatched, PatternsThatAddNothingAreNamed) {
  EXPECT_THAT(sentences(two_ranks(), {"--comm-pattern", "exch.nge"}), IsEmpty());
  EXPECT_THAT(sentences(two_ranks(), {"--comm-pattern", "zzz", "--comm-pattern", "my_"}),
              ElementsAre(HasSubstr("--comm-pattern zzz: no kernel that would not be counted")));
  EXPECT_THAT(sentences(two_ranks(), {"--comm-pattern", "ncclDev"}),
              ElementsAre(HasSubstr("--comm-pattern ncclDev")));
}

TEST(Unmatched, GroupsThatNobodyHasAreNamed) {
  for (const std::string there : {"7", "tensor parallel", "[0,1]"})
    EXPECT_THAT(sentences(two_ranks(), {"--axis-of", there + "=tp"}), IsEmpty()) << there;
  EXPECT_THAT(sentences(two_ranks(), {"--axis-of", "tensor paralel=tp"}),
              ElementsAre(AllOf(HasSubstr("--axis-of tensor paralel=tp: no rank has a group"),
                                HasSubstr("did you mean tensor parallel"),
                                HasSubstr("there are 7, [0,1], tensor parallel"))));
  EXPECT_THAT(sentences(recording_of({RankBuilder{0}.compute(0, 1)}), {"--axis-of", "3=tp"}),
              ElementsAre(HasSubstr("the files name no groups")));
}

TEST(Unmatched, AGroupWithoutANameIsNamedByItsRanks) {
  EXPECT_EQ(purpose_of({"", "", {0, 1}, 2}, 8, {{"[0,1]", "ep"}}), "ep");
}

TEST(Unmatched, AWindowBeyondTheLastWorkIsRefusedOrSaid) {
  const std::vector<std::int64_t> offset_ns{0, -1000};
  EXPECT_THAT(beyond_work(two_ranks(), offset_ns, {0, 4000}), IsEmpty());
  EXPECT_THAT(beyond_work(two_ranks(), offset_ns, {3000, 4500}),
              ElementsAre("--window goes on after the last device work ends at 4.000 us: 0.500 us "
                          "of it count as idle"));
  EXPECT_THAT(test::refusal([&] {
                return beyond_work(two_ranks(), offset_ns, {4000, 9000});
              }),
              AllOf(HasSubstr("--window begins at 4.000 us"), HasSubstr("try --window 0,4.000")));
  EXPECT_THAT(beyond_work(recording_of({RankBuilder{0}}), {0}, {0, 10}), IsEmpty());
}

TEST(TimeText, ShortTimesAreMicroseconds) {
  EXPECT_EQ(unit_for(9'999'999).text(1'234'567), "1234.567");
  EXPECT_EQ(unit_for(10'000'000).text(1'234'567), "1.235");
  EXPECT_EQ(unit_for(-9'999'999).heading("start"), "start(us)");
  EXPECT_EQ(unit_for(10'000'000).heading("start"), "start(ms)");
  EXPECT_EQ(unit_for(10'000'000).text(-100), "0.000");
  EXPECT_EQ(unit_for(10'000'000).change(-100), "+0.000");
  EXPECT_EQ(unit_for(1).change(-100), "-0.100");
  EXPECT_EQ(time_text(600'000), "600.000 us");
  EXPECT_EQ(time_text(12'345'678), "12.346 ms");
}

}  // namespace
}  // namespace shardmark::bench::analyze
