#include "layers/pipeline/lower.hpp"
#include "tests/pipeline/schedules.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::pipeline {
namespace {

using testing::HasSubstr;

TEST(ScheduleCsv, IsPyTorchsText) {
  const Schedule schedule = generate(ScheduleKind::one_f_one_b, {2, 2});
  EXPECT_EQ(to_csv(schedule), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(to_csv(split_backward(schedule)), "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
  EXPECT_EQ(to_csv(lower(schedule, Lowering::split)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
  EXPECT_EQ(to_csv(generate(ScheduleKind::dualpipe_v, {1, 2})),
            "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n");
}

TEST(ScheduleCsv, WhatPyTorchLacksStandsInTheFirstLine) {
  const Schedule schedule = generate(ScheduleKind::dualpipe, {2, 4});
  EXPECT_THAT(to_csv(schedule), testing::StartsWith("#shardmark placement=two_way\n0F0,1F2,"));
  EXPECT_THAT(to_csv(lower(schedule, Lowering::merged)),
              testing::StartsWith("#shardmark placement=two_way lowering=merged\n"));
  EXPECT_THAT(to_csv(lower(generate(ScheduleKind::one_f_one_b, {3, 6}), Lowering::merged)),
              HasSubstr("(0SEND_F2;0RECV_B0)SEND_RECV"));
}

TEST(ScheduleCsv, IsReadBackAsItWas) {
  for_each_schedule({1, 2, 3, 4, 6}, {1, 3, 6, 8, 12}, [](ScheduleKind, const Schedule& schedule) {
    for (const Schedule& each :
         {schedule, lower(schedule, Lowering::split), lower(schedule, Lowering::merged)}) {
      // One rank sends nothing, which leaves no trace of the policy "split".
      if (each.num_ranks() == 1 && each.lowering == Lowering::split) continue;
      Schedule again = parse_csv(to_csv(each));
      again.name = each.name;
      EXPECT_EQ(again, each) << to_csv(each);
    }
  });
}

// As `_dump_csv` of PyTorch writes an interleaved schedule: empty cells where a rank idles, \r\n.
TEST(ScheduleCsv, PyTorchsBubblesAndShardingActionsAreLeftOut) {
  const Schedule schedule = parse_csv(
      "# by hand\r\n"
      "0UNSHARD,0F0,0F1,,, 0B0,0RESHARD,,0B1,0REDUCE_GRAD\r\n"
      ",1F0,1B0,1F1,1B1,,,\r\n"
      "\r\n");
  Schedule expected = generate(ScheduleKind::one_f_one_b, {2, 2});
  expected.name = schedule.name;
  EXPECT_EQ(schedule, expected);
}

TEST(ScheduleCsv, MalformedTextNamesLineAndCell) {
  const auto reason = [](const std::string& text) {
    return test::refusal([&] { return parse_csv(text); });
  };
  EXPECT_THAT(reason(""), HasSubstr("the schedule is empty"));
  EXPECT_THAT(reason("\n#\n,,\n"), HasSubstr("the schedule is empty"));
  EXPECT_THAT(reason("0F0,0G0\n"), HasSubstr("line 1, cell 2: '0G0' is not an action"));
  EXPECT_THAT(reason("0F0\nF0\n"), HasSubstr("line 2, cell 1: 'F0' is not an action"));
  EXPECT_THAT(reason("0F\n"), HasSubstr("'0F' is not an action"));
  EXPECT_THAT(reason("0F-1\n"), HasSubstr("'0F-1' is not an action"));
  EXPECT_THAT(reason("-1F0\n"), HasSubstr("'-1F0' is not an action"));
  EXPECT_THAT(reason("0F0x\n"), HasSubstr("'0F0x' is not an action"));
  EXPECT_THAT(reason("0F99999999999\n"), HasSubstr("is not an action"));
  EXPECT_THAT(reason(std::string{"\x7f"
                                 "ELF\x1b[2J\0\xff",
                                 10} +
                     std::string(100, 'x')),
              HasSubstr("'\\x7fELF\\x1b[2J\\x00\\xff" + std::string(30, 'x') + "'..."));
  EXPECT_THAT(reason("(0F0;0B0)\n"), HasSubstr("where OVERLAP_F_B should be"));
  EXPECT_THAT(reason("(0F0,0B0)OVERLAP_F_B\n"), HasSubstr("is not of the form"));
  EXPECT_THAT(reason("(0F0;0UNSHARD)OVERLAP_F_B\n"), HasSubstr("that is not an action"));
  EXPECT_THAT(reason("0F0,0F2000000000\n"), HasSubstr("fewer than 1 x 2000000001 forwards"));
  EXPECT_THAT(reason("#shardmark speed=9\n0F0\n"), HasSubstr("line 1: 'speed=9' is neither"));
  EXPECT_THAT(reason("#shardmark placement=two_way\n0F0,1F0,1B0,0B0\n"),
              HasSubstr("has 2 stages on 1 ranks"));
}

TEST(ScheduleCsv, AStageLivesWhereMostOfItsForwardsAre) {
  const Schedule schedule = parse_csv("0F0,0F1,0B0,0B1,3F0,3F1,3B0,3B1\n1F0,2F0,1F1,2F1\n");
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
}

}  // namespace
}  // namespace shardmark::pipeline
