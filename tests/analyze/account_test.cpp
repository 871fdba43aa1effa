// The accounting of a window against values worked out by hand and against counting every
// nanosecond.

#include "profiler/account.hpp"

#include "tests/analyze/hand_made.hpp"

#include <gmock/gmock.h>

#include <random>

namespace shardmark {
namespace {

constexpr auto nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

std::optional<Account> account_of(const Timeline& timeline, const Window& window = {"trace", {}}) {
  return account(timeline, classify(timeline, CommRule::automatic, {}), window);
}

TEST(Account, SplitsATraceIntoPartsThatFillIt) {
  const auto account = account_of(HandMade{}
                                      .kernel("gemm", 100, 110)
                                      .kernel("gelu", 105, 115)
                                      .kernel(nccl, 108, 120, 9)
                                      .copy(112, 130)
                                      .kernel("gemm", 140, 150)
                                      .made());
  ASSERT_TRUE(account);
  EXPECT_EQ(account->span.start_ns, 100);
  EXPECT_EQ(account->span_ns, 50);
  EXPECT_EQ(account->compute_ns, 15 + 10);
  EXPECT_EQ(account->comm_ns, 12);
  EXPECT_EQ(account->copy_ns, 18);
  EXPECT_EQ(account->overlapped_ns, 7);
  EXPECT_EQ(account->exposed_comm_ns, 5);
  EXPECT_EQ(account->exposed_copy_ns, 10);
  EXPECT_EQ(account->three_way_ns, 3);
  EXPECT_EQ(account->busy_ns, 40);
  EXPECT_EQ(account->idle_ns, 10);
  EXPECT_EQ(account->residual_ns, 0);
  EXPECT_EQ(account->num_kernels, 4);
  EXPECT_EQ(account->num_comm, 1);
  EXPECT_EQ(account->num_copies, 1);
}

TEST(Account, CutsEventsToTheWindowAndTouchingIsOutside) {
  const Timeline timeline = HandMade{}
                                .kernel("before", 0, 10)
                                .kernel("across", 5, 15, 2)
                                .kernel("empty at its begin", 10, 10, 3)
                                .kernel("empty within", 12, 12, 3)
                                .kernel("after", 20, 30)
                                .made();
  const auto account = account_of(timeline, {"step:S", Span{10, 20}});
  ASSERT_TRUE(account);
  EXPECT_EQ(account->num_kernels, 2);  // across and the empty one within
  EXPECT_EQ(account->compute_ns, 5);
  EXPECT_EQ(account->idle_ns, 5);
  EXPECT_EQ(account->span_ns, 10);
  EXPECT_EQ(account->num_zero, 2);  // of the file
}

TEST(Account, NegativeDurationsAreCountedAndTakeNoTime) {
  const auto account = account_of(HandMade{}.kernel("a", 10, 4).kernel("b", 10, 20).made());
  ASSERT_TRUE(account);
  EXPECT_EQ(account->num_kernels, 2);
  EXPECT_EQ(account->num_negative, 1);
  EXPECT_EQ(account->span_ns, 10);
  EXPECT_EQ(account->compute_ns, 10);
  EXPECT_EQ(account->residual_ns, 0);
}

TEST(Account, ExistsWithoutDeviceWorkOnlyForAWindow) {
  EXPECT_FALSE(account_of(Timeline{}));
  const auto step = account_of(Timeline{}, {"step:S", Span{3, 10}});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->idle_ns, 7);
  EXPECT_EQ(step->residual_ns, 0);
}

TEST(Account, WindowsAreTheTraceAndEachStep) {
  const Timeline timeline =
      HandMade{}.step("ProfilerStep#1", 5, 10).step("ProfilerStep#2", 10, 20).made();
  const std::vector<Window> windows = windows_of(timeline);
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(windows[0].name, "trace");
  EXPECT_FALSE(windows[0].span);
  EXPECT_EQ(windows[2].name, "step:ProfilerStep#2");
  EXPECT_EQ(windows[2].span->end_ns, 20);
}

/// Counts nanosecond by nanosecond.
Account counted(const Timeline& timeline, const std::vector<WorkClass>& classes, Span window) {
  Account account;
  for (std::int64_t t = window.start_ns; t < window.end_ns; ++t) {
    bool runs[3]{};
    for (std::size_t i = 0; i < classes.size(); ++i)
      if (const Span& time = timeline.events[i].time; time.start_ns <= t && t < time.end_ns)
        runs[static_cast<std::size_t>(classes[i])] = true;
    const auto [compute, comm, copy] = runs;
    ++account.span_ns;
    account.compute_ns += compute;
    account.comm_ns += comm;
    account.copy_ns += copy;
    account.overlapped_ns += comm && compute;
    account.exposed_comm_ns += comm && !compute;
    account.exposed_copy_ns += copy && !compute && !comm;
    account.three_way_ns += compute && comm && copy;
    account.busy_ns += compute || comm || copy;
    account.idle_ns += !(compute || comm || copy);
  }
  return account;
}

TEST(Account, EqualsCountingEveryNanosecond) {
  std::mt19937 random{7};  // the same numbers everywhere, other than distributions
  const auto below = [&](std::uint32_t limit) { return static_cast<int>(random() % limit); };
  for (int round = 0; round < 300; ++round) {
    HandMade made;
    for (int i = below(20); i >= 0; --i) {
      const int start = below(100), end = start + below(24) - 2;
      switch (below(3)) {
        case 0:
          made.kernel("gemm", start, end);
          break;
        case 1:
          made.kernel(nccl, start, end);
          break;
        default:
          made.copy(start, end);
      }
    }
    const Timeline timeline = made.made();
    const auto classes = classify(timeline, CommRule::automatic, {});
    const int begin = below(60);
    for (const Window& window :
         {Window{"trace", {}}, Window{"w", Span{begin, begin + below(60)}}}) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", window " << window.name);
      const auto result = account(timeline, classes, window);
      ASSERT_TRUE(result);
      const Account expected = counted(timeline, classes, result->span);
      EXPECT_EQ(result->span_ns, expected.span_ns);
      EXPECT_EQ(result->compute_ns, expected.compute_ns);
      EXPECT_EQ(result->comm_ns, expected.comm_ns);
      EXPECT_EQ(result->copy_ns, expected.copy_ns);
      EXPECT_EQ(result->overlapped_ns, expected.overlapped_ns);
      EXPECT_EQ(result->exposed_comm_ns, expected.exposed_comm_ns);
      EXPECT_EQ(result->exposed_copy_ns, expected.exposed_copy_ns);
      EXPECT_EQ(result->three_way_ns, expected.three_way_ns);
      EXPECT_EQ(result->busy_ns, expected.busy_ns);
      EXPECT_EQ(result->idle_ns, expected.idle_ns);
      EXPECT_EQ(result->residual_ns, 0);
    }
  }
}

TEST(Subtracted, TakesHolesEndsAndWholeSpans) {
  const std::vector<Span> a{{0, 10}, {20, 30}, {40, 50}, {60, 70}};
  const std::vector<Span> b{{2, 4}, {6, 8}, {18, 33}, {45, 65}};
  const std::vector<Span> rest = subtracted(a, b);
  ASSERT_EQ(rest.size(), 5U);
  const std::vector<Span> expected{{0, 2}, {4, 6}, {8, 10}, {40, 45}, {65, 70}};
  for (std::size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].start_ns, expected[i].start_ns);
    EXPECT_EQ(rest[i].end_ns, expected[i].end_ns);
  }
}

TEST(Intersected, BeginsWhereTheOtherDoes) {
  const std::vector<Span> many{{0, 10}, {20, 30}, {40, 50}, {60, 70}};
  for (const auto& common : {intersected(many, std::vector<Span>{{25, 45}}),
                             intersected(std::vector<Span>{{25, 45}}, many)}) {
    ASSERT_EQ(common.size(), 2U);
    EXPECT_EQ(common[0].start_ns, 25);
    EXPECT_EQ(common[0].end_ns, 30);
    EXPECT_EQ(common[1].start_ns, 40);
    EXPECT_EQ(common[1].end_ns, 45);
  }
  EXPECT_TRUE(intersected(many, std::vector<Span>{{70, 80}}).empty());
  EXPECT_TRUE(intersected(many, std::vector<Span>{}).empty());
}

TEST(Accounting, OfAWindowBeginsWithTheFirstEventThatMayReachIntoIt) {
  const Timeline timeline =
      HandMade{}.kernel("long", 0, 100, 1).kernel("short", 10, 20).kernel("late", 90, 110).made();
  const auto classes = classify(timeline, CommRule::automatic, {});
  const Accounting accounting{timeline, classes};
  EXPECT_EQ(accounting.first_after(99), 0U);
  EXPECT_EQ(accounting.first_after(100), 2U);
  EXPECT_EQ(accounting.first_after(110), 3U);
  const Account account = accounting.of({"w", Span{50, 105}}).value();
  EXPECT_EQ(account.num_kernels, 2);
  EXPECT_EQ(account.compute_ns, 55);
}

}  // namespace
}  // namespace shardmark
