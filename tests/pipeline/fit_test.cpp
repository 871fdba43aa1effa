// Zero-bubble schedules made from measured durations.

#include "tests/pipeline/schedules.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <array>

namespace shardmark::pipeline {
namespace {

using testing::HasSubstr;
using Kind = ScheduleKind;

constexpr std::array kinds{Kind::zb_h1, Kind::zb_h2, Kind::zb_v, Kind::v_half, Kind::v_min};
const std::vector<StageTimes> some_times{{1, 1, 1},     {2, 1, 1},    {1, 2, 1},    {1, 1, 2},
                                         {1, 1.5, 0.7}, {3, 1, 0.25}, {0.2, 2, 1.5}};

TEST(Fit, IsRightAndStaysWithinTheLimit) {
  for (const Kind kind : kinds)
    for (const int p : {1, 2, 3, 4})
      for (const int m : {1, 3, 8, 13})
        for (const StageTimes& times : some_times) {
          SCOPED_TRACE(message(facts_of(kind).name, " p ", p, " m ", m, " F ", times.forward, " I ",
                               times.backward_input, " W ", times.backward_weight));
          const Durations durations{{times}, 0.3};
          const Schedule schedule = fit(kind, {p, m}, durations);
          expect_valid(schedule);
          EXPECT_LE(replay(schedule, durations).peak_in_flight(), own_memory_limit(kind, p));
        }
}

TEST(Fit, IsNeverSlowerThanTheScheduleForUnitTimes) {
  for (const Kind kind : kinds)
    for (const int p : {1, 2, 3, 4})
      for (const int m : {1, 3, 8, 14})
        for (const StageTimes& times : some_times) {
          const Durations durations{{times}, 0.3};
          EXPECT_LE(replay(fit(kind, {p, m}, durations), durations).window,
                    replay(generate(kind, {p, m}), durations).window + 1e-9)
              << facts_of(kind).name << " p " << p << " m " << m << " F " << times.forward << " I "
              << times.backward_input << " W " << times.backward_weight;
        }
}

TEST(Fit, AtUnitTimesReachesTheSameBubble) {
  for (const int p : {2, 3, 4, 8})
    for (const Kind kind : {Kind::zb_h1, Kind::zb_h2, Kind::zb_v})
      EXPECT_EQ(replay(fit(kind, {p, 3 * p}, {})).mean_bubble(), p - 1) << p;
}

TEST(Fit, MoreMemoryNeverCostsTime) {
  for (const Kind kind : {Kind::zb_h1, Kind::zb_v})
    for (const int p : {3, 4}) {
      const Durations durations{{StageTimes{1, 1.2, 0.8}}, 0.25};
      double before = 1e9;
      for (int limit = 2; limit <= 4 * p; ++limit) {
        const Timeline timeline = replay(fit(kind, {p, 4 * p}, durations, limit), durations);
        EXPECT_LE(timeline.peak_in_flight(), limit);
        EXPECT_LE(timeline.window, before + 1e-9) << facts_of(kind).name << " limit " << limit;
        before = timeline.window;
      }
    }
}

TEST(Fit, StagesMayDiffer) {
  const Durations durations{{{1, 1, 1}, {1.5, 1.4, 1.2}, {0.5, 0.6, 0.4}, {1, 2, 1.5}}, 0.1};
  const Schedule schedule = fit(Kind::zb_h2, {4, 12}, durations);
  expect_valid(schedule);
  EXPECT_LE(replay(schedule, durations).window,
            replay(generate(Kind::one_f_one_b, {4, 12}), durations).window);
}

TEST(Fit, BadInputIsRefused) {
  const auto refusal = [](Kind kind, const Durations& durations, int limit) {
    return test::refusal([&] { return fit(kind, {3, 6}, durations, limit); });
  };
  EXPECT_THAT(refusal(Kind::gpipe, {}, 0), HasSubstr("gpipe is not made from durations"));
  EXPECT_THAT(refusal(Kind::zb_v, {}, 1), HasSubstr("it takes at least 2"));
  EXPECT_THAT(refusal(Kind::zb_h1, {}, -1), HasSubstr("it takes at least 1"));
  EXPECT_THAT(refusal(Kind::zb_h1, {{StageTimes{1, 0, 1}}}, 0), HasSubstr("must be positive"));
  EXPECT_THAT(refusal(Kind::zb_h1, {{StageTimes{}, StageTimes{}}}, 0), HasSubstr("there are 3"));
  EXPECT_THAT(refusal(Kind::zb_h1, {{StageTimes{}}, -1}, 0), HasSubstr("must be 0 or more"));
  EXPECT_EQ(refusal(Kind::zb_h1, {}, 1), "accepted");
  EXPECT_EQ(refusal(Kind::zb_v, {}, 2), "accepted");
}

}  // namespace
}  // namespace shardmark::pipeline
