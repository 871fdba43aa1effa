#include "layers/pipeline/lower.hpp"
#include "tests/pipeline/runs.hpp"
#include "tests/pipeline/schedules.hpp"

#include <gmock/gmock.h>

#include <random>

namespace shardmark::pipeline {
namespace {

using testing::HasSubstr;

TEST(Validate, EveryGeneratedScheduleIsRightBeforeAndAfterLowering) {
  for_each_schedule({1, 2, 3, 4, 5, 8}, {1, 2, 3, 4, 5, 8, 16, 17, 24},
                    [](ScheduleKind, const Schedule& schedule) {
                      expect_valid(schedule);
                      expect_valid(split_backward(schedule));
                      expect_valid(lower(schedule, Lowering::split));
                      expect_valid(lower(schedule, Lowering::merged));
                    });
}

// Some hundred thousand actions each: linear, so this is quick.
TEST(Validate, LargeSchedulesAreRight) {
  for (const ScheduleKind kind :
       {ScheduleKind::interleaved, ScheduleKind::zb_v, ScheduleKind::dualpipe}) {
    const Schedule schedule = generate(kind, {64, 256});
    expect_valid(schedule);
    expect_valid(lower(schedule, Lowering::split));
  }
}

/// Two stages, two micro-batches, by hand; each broken schedule differs in one thing.
struct Broken {
  const char* name;
  const char* text;
  const char* reason;
};

constexpr Broken by_hand[] = {
    {"a backward before its forward", "0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n",
     "rank 0 step 1: 0B1 comes before its forward 0F1 at step 2"},
    {"a missing forward", "0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n", "rank 1: 1F1 is missing"},
    {"a missing backward", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n",
     "rank 1: 1B1, or 1I1 and 1W1, is missing"},
    {"a missing weight gradient", "0F0,0F1,0B0,0I1\n1F0,1B0,1F1,1B1\n", "rank 0: 0W1 is missing"},
    {"a double action", "0F0,0F1,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
     "rank 0 step 2: 0F1 is there twice: also at rank 0 step 1"},
    {"a backward whole and in parts", "0F0,0F1,0B0,0W0,0B1\n1F0,1B0,1F1,1B1\n",
     "rank 0 step 3: 0W0 is part of 0B0, which is there as well"},
    {"the wrong rank", "0F0,0F1,0B0,0B1,1B1\n1F0,1B0,1F1\n",
     "rank 0 step 4: 1B1 is on the wrong rank: stage 1 lives on rank 1"},
    {"a weight gradient before its input gradient", "0F0,0F1,0W0,0I0,0B1\n1F0,1B0,1F1,1B1\n",
     "rank 0 step 2: 0W0 comes before its input gradient 0I0 at step 3"},
    {"ranks that wait for each other", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
     "deadlock: rank 0 step 1 (0B0) waits for rank 1 step 2 (1B0), that for rank 1 step 1 (1F1), "
     "that for rank 0 step 2 (0F1), and that for the first again"},
    {"a forward of a V before the one above it", "0F0,3F0,3B0,0B0\n2F0,1F0,2B0,1B0\n",
     "rank 1 step 0: 2F0 comes before its input 1F0 at step 1"},
    {"a rank without a stage", "0F0,0B0\n\n1F0,1B0\n", "rank 1: there is no stage on this rank"},
    {"an overlap of two forwards", "(0F0;0F1)OVERLAP_F_B,0B0,0B1\n1F0,1B0,1F1,1B1\n",
     "rank 0 step 0: (0F0;0F1)OVERLAP_F_B joins what cannot run as one"},
    {"an overlap with its own backward", "0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;1B1)OVERLAP_F_B\n",
     "rank 1 step 2: 1B1 runs together with its forward 1F1"},
};

TEST(Validate, BrokenSchedulesByHandAreRefusedWithTheReason) {
  for (const Broken& broken : by_hand)
    EXPECT_THAT(all_of(validate(parse_csv(broken.text))), HasSubstr(broken.reason)) << broken.name;
}

constexpr Broken lowered_by_hand[] = {
    {"no send", "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "rank 0: 0SEND_F0 is missing"},
    {"no receive", "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "rank 1: 1RECV_F0 is missing"},
    {"two receives", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 1 step 1: 1RECV_F0 is there twice"},
    {"a receive after its use", "0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0 step 2: 0B0 comes before its input arrives with 0RECV_B0 at step 3"},
    {"a send before there is anything", "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0 step 0: 0SEND_F0 comes before what it sends, 0F0 at step 1"},
    {"a send to nobody", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0\n",
     "rank 1 step 2: 1SEND_F0 has no stage at its other end"},
    {"a send to itself",
     "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,2RECV_F0,2F0,2B0,1B0,1SEND_B0\n",
     "rank 1 step 2: 1SEND_F0: stage 2 is on the same rank"},
    {"another order on the other side",
     "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
     "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
     "rank 1 step 0: 1RECV_F1 would receive 0SEND_F0, which rank 0 sends first, at step 1"},
};

TEST(Validate, BrokenLoweredSchedulesByHandAreRefusedWithTheReason) {
  for (const Broken& broken : lowered_by_hand)
    EXPECT_THAT(all_of(validate(parse_csv(broken.text))), HasSubstr(broken.reason)) << broken.name;
}

// One lane for all messages: both ranks send first and wait for the other to receive.
TEST(Validate, RendezvousSendsOnOneLaneDeadlock) {
  const std::string text =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
  expect_valid(parse_csv(text));
  EXPECT_THAT(
      all_of(validate(parse_csv("#shardmark lowering=merged\n" + text))),
      testing::AllOf(HasSubstr("deadlock: "), HasSubstr("0SEND_F1"), HasSubstr("1SEND_B0")));
}

/// Small ones of every kind, as they are and lowered by both policies.
template <class Visit>
void for_each_small(Visit&& visit) {
  for_each_schedule({2, 3, 4}, {6, 8}, [&](ScheduleKind, const Schedule& schedule) {
    visit(schedule);
    visit(lower(schedule, Lowering::split));
    visit(lower(schedule, Lowering::merged));
  });
}

TEST(ValidateMutation, AnyDroppedActionIsRefused) {
  for_each_small([](const Schedule& schedule) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
        Schedule mutated = schedule;
        const Step step = mutated.ranks[r][i];
        mutated.ranks[r].erase(mutated.ranks[r].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_THAT(all_of(validate(mutated)), HasSubstr(" is missing")) << to_text(step);
        if (!step.with) continue;
        for (const Action& left : {step.action, *step.with}) {
          mutated = schedule;
          mutated.ranks[r][i] = {left, {}};
          EXPECT_THAT(all_of(validate(mutated)), HasSubstr(" is missing")) << to_text(step);
        }
      }
  });
}

TEST(ValidateMutation, AnyActionMovedToAnotherRankIsRefused) {
  for_each_small([](const Schedule& schedule) {
    for (std::size_t i = 0; i < schedule.ranks[0].size(); ++i) {
      Schedule mutated = schedule;
      std::swap(mutated.ranks[0][i], mutated.ranks[1][i % mutated.ranks[1].size()]);
      EXPECT_THAT(all_of(validate(mutated)), HasSubstr(" is on the wrong rank"));
    }
  });
}

// Some swaps make another right schedule (two forwards of the first rank), the others must be
// refused. Which is which says a run in the simplest way.
TEST(ValidateMutation, SwapsAreRefusedExactlyIfTheScheduleNoLongerRuns) {
  int num_right = 0, num_wrong = 0;
  std::mt19937 random{7};
  const auto check = [&](const Schedule& mutated) {
    const bool runs = SimpleRun{mutated}.ends();
    ++(runs ? num_right : num_wrong);
    const auto problems = validate(mutated);
    EXPECT_EQ(problems.empty(), runs) << all_of(problems) << to_csv(mutated);
  };
  for_each_small([&](const Schedule& schedule) {
    EXPECT_TRUE(SimpleRun{schedule}.ends());
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      const std::size_t n = schedule.ranks[r].size();
      for (int trial = 0; trial < 12; ++trial) {
        const std::size_t i = random() % (n - 1);
        const std::size_t j = trial % 2 == 0 ? i + 1 : random() % n;
        if (i == j) continue;
        Schedule mutated = schedule;
        std::swap(mutated.ranks[r][i], mutated.ranks[r][j]);
        check(mutated);
      }
    }
  });
  EXPECT_GT(num_right, 100);
  EXPECT_GT(num_wrong, 1000);
}

bool is_needed_by(const Action& first, const Action& second) {
  if (first.stage != second.stage || first.micro != second.micro) return false;
  const Act act = second.act;
  switch (first.act) {
    case Act::F:
      return makes_gradient(act) || act == Act::send_F;
    case Act::I:
      return act == Act::W || act == Act::send_B;
    case Act::B:
      return act == Act::send_B;
    case Act::recv_F:
      return act == Act::F;
    case Act::recv_B:
      return makes_gradient(act);
    default:
      return false;
  }
}

TEST(ValidateMutation, SwappingAnActionWithOneThatNeedsItIsRefused) {
  int num_swaps = 0;
  for_each_small([&](const Schedule& schedule) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i)
        for (std::size_t j = i + 1; j < schedule.ranks[r].size(); ++j) {
          const Step &first = schedule.ranks[r][i], &second = schedule.ranks[r][j];
          if (first.with || second.with || !is_needed_by(first.action, second.action)) continue;
          Schedule mutated = schedule;
          std::swap(mutated.ranks[r][i], mutated.ranks[r][j]);
          ++num_swaps;
          EXPECT_FALSE(validate(mutated).empty()) << to_csv(mutated);
        }
  });
  EXPECT_GT(num_swaps, 1000);
}

}  // namespace
}  // namespace shardmark::pipeline
