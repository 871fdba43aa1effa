#include "layers/pipeline/lower.hpp"

#include "tests/pipeline/schedules.hpp"

#include <gmock/gmock.h>

#include <map>

namespace shardmark::pipeline {
namespace {

int count(const Schedule& schedule, Act act) {
  int number = 0;
  for (const auto& steps : schedule.ranks)
    for (const Step& step : steps)
      for_each_action(step, [&](const Action& a) { number += a.act == act ? 1 : 0; });
  return number;
}

Schedule without_messages(Schedule schedule) {
  schedule.lowering = Lowering::none;
  for (auto& steps : schedule.ranks)
    std::erase_if(steps, [](const Step& step) { return !is_compute(step.action.act); });
  return schedule;
}

TEST(SplitBackward, KeepsOrderAndPutsTheWeightGradientBehind) {
  const Schedule split = split_backward(parse_csv("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n"));
  EXPECT_EQ(to_csv(split), "0F0,0F1,(0F2;0I0)OVERLAP_F_B,0W0,0I1,0W1,0I2,0W2\n");
  EXPECT_EQ(split_backward(split), split);
}

TEST(Lower, LeavesComputeAsItWasAndAddsTwoMessagesPerBoundary) {
  for_each_schedule({1, 2, 3, 4}, {4, 6, 8}, [](ScheduleKind, const Schedule& schedule) {
    int num_boundaries = 0;
    for (int stage = 0; stage + 1 < schedule.num_stages; ++stage)
      if (schedule.rank_of(stage, 0) != schedule.rank_of(stage + 1, 0)) ++num_boundaries;
    for (const Lowering policy : {Lowering::split, Lowering::merged}) {
      const Schedule lowered = lower(schedule, policy);
      EXPECT_EQ(without_messages(lowered), schedule);
      for (const Act act : {Act::send_F, Act::recv_F, Act::send_B, Act::recv_B})
        EXPECT_EQ(count(lowered, act), num_boundaries * schedule.num_micro) << name_of(act);
    }
  });
}

// The order of submission must not cost time where messages take none.
TEST(Lower, SplitTakesAsLongAsTheScheduleItself) {
  for_each_schedule({1, 2, 3, 4, 8}, {1, 4, 8, 16, 24}, [](ScheduleKind, const Schedule& schedule) {
    EXPECT_EQ(replay(lower(schedule, Lowering::split)).window, replay(schedule).window);
  });
}

TEST(Lower, MergedSharesOneLaneAndMegatronsPairs) {
  const Schedule lowered = lower(generate(ScheduleKind::one_f_one_b, {3, 6}), Lowering::merged);
  int num_merged = 0;
  for (const auto& steps : lowered.ranks)
    for (const Step& step : steps) {
      if (is_compute(step.action.act)) continue;
      EXPECT_EQ(lane_of(step, lowered.lowering), Lane::pp_fwd_send);
      if (!step.with) continue;
      ++num_merged;
      EXPECT_TRUE(is_send(step.action.act) && is_receive(step.with->act)) << to_text(step);
    }
  EXPECT_GT(num_merged, 6);
}

TEST(Lower, SplitHasALanePerDirectionAndEnd) {
  const Schedule lowered = lower(generate(ScheduleKind::gpipe, {2, 1}), Lowering::split);
  std::map<Act, Lane> lanes;
  for (const auto& steps : lowered.ranks)
    for (const Step& step : steps) lanes[step.action.act] = lane_of(step, lowered.lowering);
  EXPECT_EQ(lanes, (std::map<Act, Lane>{{Act::F, Lane::compute},
                                        {Act::B, Lane::compute},
                                        {Act::send_F, Lane::pp_fwd_send},
                                        {Act::recv_F, Lane::pp_fwd_recv},
                                        {Act::send_B, Lane::pp_bwd_send},
                                        {Act::recv_B, Lane::pp_bwd_recv}}));
}

TEST(Lower, WhatIsLoweredIsRefused) {
  const Schedule lowered = lower(generate(ScheduleKind::gpipe, {3, 3}), Lowering::split);
  EXPECT_THROW((void)lower(lowered, Lowering::split), Error);
  EXPECT_THROW((void)split_backward(lowered), Error);
}

}  // namespace
}  // namespace shardmark::pipeline
