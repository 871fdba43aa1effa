// Buffers and fences of a rank's plan, for every schedule.

#include "layers/pipeline/rank_plan.hpp"

#include "layers/pipeline/lower.hpp"
#include "tests/pipeline/schedules.hpp"

#include <gmock/gmock.h>

#include <map>

namespace shardmark::pipeline {
namespace {

template <class Visit>
void for_each_plan(const Visit& visit) {
  for_each_schedule({1, 2, 3, 4, 8}, {1, 4, 8, 24}, [&](ScheduleKind, const Schedule& schedule) {
    for (const Lowering policy : {Lowering::split, Lowering::merged}) {
      const Schedule lowered = lower(schedule, policy);
      for (int rank = 0; rank < lowered.num_ranks(); ++rank) {
        SCOPED_TRACE(message(policy == Lowering::split ? "split" : "merged", " rank ", rank));
        visit(schedule, rank, plan_rank(lowered, rank));
      }
    }
  });
}

/// Activations are held exactly as long as the schedule says.
TEST(RankPlan, HasAsManyStatesAsTheScheduleHasInFlight) {
  for_each_plan([](const Schedule& schedule, int rank, const RankPlan& plan) {
    const int peak = replay(schedule).ranks[static_cast<std::size_t>(rank)].peak_in_flight;
    const std::vector<int> stages = schedule.stages_of(rank);
    int states = 0;
    for (int stage = 0; stage < schedule.num_stages; ++stage) {
      const Held& num = plan.num_buffers[static_cast<std::size_t>(stage)];
      states += num.state;
      EXPECT_EQ(num.state > 0, std::ranges::find(stages, stage) != stages.end());
      EXPECT_EQ(num.x > 0, num.state > 0 && stage > 0);
      EXPECT_EQ(num.dy > 0, num.state > 0 && stage + 1 < schedule.num_stages);
    }
    // Stages of one rank need not peak together.
    if (stages.size() == 1)
      EXPECT_EQ(states, peak);
    else
      EXPECT_GE(states, peak);
  });
}

/// Walks down the list: a buffer that is filled belongs to nobody, and is read by whom it belongs.
TEST(RankPlan, GivesABufferToOneMicroBatchAtATime) {
  for_each_plan([](const Schedule&, int, const RankPlan& plan) {
    using Owner = std::pair<int, int>;
    std::map<std::tuple<char, int, int>, Owner> owners;  // by kind, stage, buffer
    std::map<Owner, int> num_uses;                       // of a state, that are still to come
    const auto uses_state = [](const Action& action) { return !is_receive(action.act); };
    for (const Instruction& instruction : plan.instructions)
      for_each_action(instruction.step, [&](const Action& action) {
        if (uses_state(action)) ++num_uses[{action.stage, action.micro}];
      });
    const auto fill = [&](char kind, int stage, int buffer, int micro) {
      ASSERT_GE(buffer, 0);
      const bool is_new = owners.try_emplace({kind, stage, buffer}, stage, micro).second;
      EXPECT_TRUE(is_new) << kind << ' ' << buffer << " of stage " << stage << " is not free";
    };
    const auto read = [&](char kind, int stage, int buffer, int micro) {
      const auto found = owners.find({kind, stage, buffer});
      ASSERT_TRUE(found != owners.end() && found->second == Owner(stage, micro))
          << kind << ' ' << buffer << " of stage " << stage << " is not of micro-batch " << micro;
    };
    const auto visit = [&](const Action& action, const Held& held, const Held& before) {
      const auto [act, stage, micro] = action;
      if (act == Act::recv_F || (act == Act::F && before.state >= 0))
        fill('x', stage, held.x, micro);
      if (act == Act::recv_B) fill('g', stage, held.dy, micro);
      if (act == Act::F) fill('s', stage, held.state, micro);
      if (makes_gradient(act) && before.dy >= 0) fill('g', stage - 1, before.dy, micro);
      if (act == Act::F && before.state >= 0) read('s', stage - 1, before.state, micro);
      if (uses_state(action)) {
        read('s', stage, held.state, micro);
        if (--num_uses[{stage, micro}] == 0) owners.erase({'s', stage, held.state});
      }
      if (!is_compute(act)) return;
      if (act != Act::W && held.x >= 0) read('x', stage, held.x, micro);
      if (act != Act::F && held.dy >= 0) read('g', stage, held.dy, micro);
      if (makes_gradient(act)) owners.erase({'x', stage, held.x});
      if (act == Act::B || act == Act::W) owners.erase({'g', stage, held.dy});
    };
    for (const Instruction& instruction : plan.instructions) {
      visit(instruction.step.action, instruction.held, instruction.before);
      if (instruction.step.with) visit(*instruction.step.with, instruction.with, {});
    }
    EXPECT_THAT(owners, testing::IsEmpty());
  });
}

TEST(RankPlan, WaitsOnlyForWhatIsNotKnownAnyway) {
  const Schedule lowered =
      lower(generate(ScheduleKind::one_f_one_b, {.ranks = 2, .micro = 2}), Lowering::split);
  const auto to_text_of = [&](int rank) {
    const RankPlan plan = plan_rank(lowered, rank);
    std::string text = plan.signals_start ? "start" : "";
    for (const Instruction& instruction : plan.instructions) {
      text += '\n' + to_text(instruction.step);
      for (const int event : instruction.awaits)
        text +=
            event == 0
                ? std::string{" after start"}
                : " after " + to_text(plan.instructions[static_cast<std::size_t>(event) - 1].step);
    }
    for (const int event : plan.awaits_at_end)
      text += "\nafter " + to_text(plan.instructions[static_cast<std::size_t>(event) - 1].step);
    return text;
  };
  // The second receive is on a lane that waited for the start already.
  EXPECT_EQ(to_text_of(0), R"(start
0F0
0SEND_F0 after 0F0
0F1
0SEND_F1 after 0F1
0RECV_B0 after start
0B0 after 0RECV_B0
0RECV_B1
0B1 after 0RECV_B1
after 0SEND_F1)");
  // 1B1 overwrites the input gradient that 1SEND_B0 sends: there is one state.
  EXPECT_EQ(to_text_of(1), R"(start
1RECV_F0 after start
1F0 after 1RECV_F0
1RECV_F1
1B0
1SEND_B0 after 1B0
1F1 after 1RECV_F1
1B1 after 1SEND_B0
1SEND_B1 after 1B1
after 1SEND_B1)");
}

/// A receive that is posted early may not wait for what happens to be computed before it.
TEST(RankPlan, EarlyReceivesWaitForNothingButTheirBuffer) {
  const Schedule lowered =
      lower(generate(ScheduleKind::gpipe, {.ranks = 2, .micro = 6}), Lowering::split);
  for (const Instruction& instruction : plan_rank(lowered, 1).instructions) {
    if (instruction.step.action.act != Act::recv_F) continue;
    // All six inputs have buffers of their own: only the first receive waits, for the start.
    const std::vector<int> start{0};
    EXPECT_EQ(instruction.awaits, instruction.step.action.micro == 0 ? start : std::vector<int>{});
  }
}

TEST(RankPlan, NeedsMessages) {
  const Schedule schedule = generate(ScheduleKind::gpipe, {.ranks = 3, .micro = 3});
  EXPECT_THROW((void)plan_rank(schedule, 0), Error);
  EXPECT_NO_THROW((void)plan_rank(generate(ScheduleKind::gpipe, {.ranks = 1, .micro = 3}), 0));
}

}  // namespace
}  // namespace shardmark::pipeline
