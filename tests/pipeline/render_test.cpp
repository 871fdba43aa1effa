#include "layers/pipeline/render.hpp"

#include "layers/pipeline/lower.hpp"
#include "tests/pipeline/schedules.hpp"

#include <gmock/gmock.h>

namespace shardmark::pipeline {
namespace {

using testing::HasSubstr;

TEST(ScheduleGrid, ShowsUnitsOfTime) {
  EXPECT_EQ(to_grid(generate(ScheduleKind::one_f_one_b, {2, 2})),
            "rank 0  0F0 0F1 .   .   0B0     .   0B1\n"
            "rank 1  .   1F0 1B0     1F1 1B1     .   .\n");
  EXPECT_EQ(to_grid(generate(ScheduleKind::zb_h1, {2, 2})),
            "rank 0  0F0 0F1 .   0I0 0W0 0I1 0W1\n"
            "rank 1  .   1F0 1I0 1F1 1I1 1W0 1W1\n");
}

TEST(ScheduleGrid, MarksTheFailingStep) {
  const Schedule schedule = parse_csv("0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n");
  const auto problems = validate(schedule);
  EXPECT_EQ(to_grid(schedule, problems),
            "rank 0  0F0   >0B1< 0F1   0B0\n"
            "rank 1  1F0   1B0   1F1   1B1\n"
            "rank 0 step 1: 0B1 comes before its forward 0F1 at step 2\n");
  EXPECT_THAT(to_svg(schedule, problems),
              testing::AllOf(HasSubstr("#ff4d4d"), HasSubstr("0B1 comes before its forward")));
}

TEST(ScheduleGrid, OverlappedAndLoweredStepsAreShown) {
  EXPECT_THAT(to_grid(generate(ScheduleKind::dualpipe, {4, 8})), HasSubstr("0F3+3B5"));
  EXPECT_THAT(to_grid(lower(generate(ScheduleKind::gpipe, {3, 2}), Lowering::split)),
              HasSubstr("rank 1  1RECV_F0 1F0"));
}

TEST(ScheduleSvg, DrawsEveryStep) {
  for_each_schedule({2, 3, 4}, {8}, [](ScheduleKind, const Schedule& schedule) {
    const std::string svg = to_svg(schedule);
    EXPECT_THAT(svg, testing::AllOf(testing::StartsWith("<svg"), testing::EndsWith("</svg>\n")));
    EXPECT_THAT(svg, testing::Not(HasSubstr("#ff4d4d")));
    for (const auto& steps : schedule.ranks)
      for (const Step& step : steps)
        for_each_action(step, [&](const Action& action) {
          EXPECT_THAT(svg, HasSubstr('>' + to_text(action) + '<'));
        });
  });
}

TEST(ScheduleSvg, ShowsMessagesThatTakeTime) {
  const Schedule schedule = lower(generate(ScheduleKind::gpipe, {3, 2}), Lowering::split);
  EXPECT_THAT(to_svg(schedule), testing::Not(HasSubstr("SEND_F")));
  EXPECT_THAT(to_svg(schedule, {}, {{StageTimes{}}, 0.5}), HasSubstr(">1SEND_F0<"));
}

}  // namespace
}  // namespace shardmark::pipeline
