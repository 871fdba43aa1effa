// Top kernels, gaps and their causes, peer copies and MFU of hand-made recordings.

#include "bench/analyze/tops.hpp"

#include "bench/analyze/flops.hpp"
#include "bench/analyze/windows.hpp"
#include "core/error.hpp"
#include "tests/analyze/hand_made.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

RankRecording recorded(const HandMade& made) {
  RankRecording rank;
  rank.timeline = made.made();
  rank.classes = classify(rank.timeline, CommRule::automatic, {});
  return rank;
}
const ChosenSpans trace{};

TEST(TopKernels, AreSortedByTotalWithTheirShare) {
  const RankRecording rank = recorded(HandMade{}
                                          .kernel("short", 0, 10'000)
                                          .kernel("short", 20'000, 50'000)
                                          .kernel(nccl, 50'000, 150'000, 9)
                                          .copy(150'000, 210'000)
                                          .kernel("negative", 300'000, 200'000));
  const auto tops = top_kernels(rank, trace, 3);
  ASSERT_EQ(tops.size(), 3U);
  EXPECT_EQ(tops[0].name, nccl);
  EXPECT_EQ(tops[0].work, WorkClass::communication);
  EXPECT_EQ(tops[0].share_pct, 50);
  EXPECT_EQ(tops[1].work, WorkClass::memory);
  EXPECT_EQ(tops[1].total_ns, 60'000);
  EXPECT_EQ(tops[2].name, "short");
  EXPECT_EQ(tops[2].count, 2);
  EXPECT_EQ(tops[2].min_ns, 10'000);
  EXPECT_EQ(tops[2].max_ns, 30'000);
  EXPECT_EQ(tops[2].mean_us, 20);
  EXPECT_EQ(tops[2].share_pct, 20);
}

TEST(TopKernels, OfSpansAreWhatLiesInThem) {
  const RankRecording rank =
      recorded(HandMade{}.kernel("a", 0, 15).kernel("b", 15, 40).kernel("c", 40, 50));
  const auto tops = top_kernels(rank, std::vector<Span>{{10, 20}, {30, 40}}, 10);
  ASSERT_EQ(tops.size(), 2U);
  EXPECT_EQ(tops[0].name, "b");
  EXPECT_EQ(tops[0].count, 1);
  EXPECT_EQ(tops[0].total_ns, 15);
  EXPECT_EQ(tops[1].name, "a");
  EXPECT_EQ(tops[1].total_ns, 5);
  EXPECT_EQ(tops[1].max_ns, 5);
}

/// Gaps of 100, 30, 20 and 10 ns.
RankRecording with_gaps() {
  return recorded(HandMade{}
                      .kernel("a", 0, 50)
                      .kernel("late", 150, 160, 7, 120)
                      .kernel("not in the file", 170, 180, 7)
                      .kernel("queued", 200, 210, 7, 130)
                      .kernel("before its launch", 240, 250, 7, 245));
}

TEST(Gaps, SayWhatWasAroundAndWhetherTheHostWasLate) {
  const auto gaps = longest_gaps(with_gaps(), trace, 3);
  ASSERT_EQ(gaps.size(), 3U);
  EXPECT_EQ(gaps[0].time.start_ns, 50);
  EXPECT_EQ(gaps[0].time.end_ns, 150);
  EXPECT_EQ(gaps[0].before, "a");
  EXPECT_EQ(gaps[0].after, "late");
  EXPECT_EQ(gaps[0].cause, GapCause::host_bound);
  EXPECT_EQ(gaps[0].late_ns, 70);
  EXPECT_EQ(gaps[1].after, "before its launch");
  EXPECT_EQ(gaps[1].cause, GapCause::unknown);
  EXPECT_EQ(gaps[2].before, "not in the file");
  EXPECT_EQ(gaps[2].after, "queued");
  EXPECT_EQ(gaps[2].cause, GapCause::waiting);
}

TEST(Gaps, AddUpToTheIdleTime) {
  const RankRecording rank = with_gaps();
  for (const ChosenSpans& chosen : {trace, ChosenSpans{{{40, 1000}}}}) {
    const IdleSplit split = split_idle(rank, chosen);
    const Window window{"w", chosen ? std::optional{chosen->front()} : std::nullopt};
    EXPECT_EQ(split.host_bound_ns + split.waiting_ns + split.unknown_ns,
              account(rank.timeline, rank.classes, window)->idle_ns);
    // Of the first gap 70 until the launch; the others were launched before.
    EXPECT_EQ(split.host_bound_ns, 70);
    EXPECT_EQ(split.waiting_ns, 30 + 20);
  }
}

// Ended at 20, launched at 21, begun at 120: the host was late for 1 of 100.
TEST(Gaps, AreTheHostsUpToTheLaunch) {
  const RankRecording rank =
      recorded(HandMade{}.kernel("a", 10, 20, 7, 0).kernel("b", 120, 130, 7, 21));
  const IdleSplit split = split_idle(rank, trace);
  EXPECT_EQ(split.host_bound_ns, 1);
  EXPECT_EQ(split.waiting_ns, 99);
  EXPECT_EQ(split.unknown_ns, 0);
  const Gap gap = longest_gaps(rank, trace, 1).at(0);
  EXPECT_EQ(gap.cause, GapCause::waiting);
  EXPECT_EQ(gap.late_ns, 1);
}

TEST(Gaps, OfSeveralSpansAddUp) {
  const RankRecording rank = with_gaps();
  const ChosenSpans chosen = std::vector<Span>{{100, 140}, {145, 150}, {185, 205}};
  const IdleSplit split = split_idle(rank, chosen);
  EXPECT_EQ(split.host_bound_ns, 20);
  EXPECT_EQ(split.waiting_ns, 20 + 5 + 15);
  EXPECT_EQ(split.unknown_ns, 0);
  const auto gaps = longest_gaps(rank, chosen, 10);
  ASSERT_EQ(gaps.size(), 3U);
  EXPECT_EQ(gaps[0].before, "a");
  EXPECT_EQ(gaps[0].after, "late");
  EXPECT_EQ(gaps[1].before, "not in the file");
}

TEST(Gaps, BeginWithWorkThatTakesNoTime) {
  const RankRecording rank = recorded(HandMade{}.kernel("empty", 10, 10).kernel("a", 20, 25));
  EXPECT_EQ(account(rank.timeline, rank.classes, {"trace", {}})->idle_ns, 10);
  EXPECT_EQ(split_idle(rank, trace).unknown_ns, 10);
}

TEST(Gaps, AtTheEndsOfAWindowHaveOneNeighbour) {
  const RankRecording rank = recorded(HandMade{}.kernel("a", 50, 60));
  const auto gaps = longest_gaps(rank, std::vector<Span>{{0, 100}}, 10);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].before, "");
  EXPECT_EQ(gaps[0].after, "a");
  EXPECT_EQ(gaps[1].before, "a");
  EXPECT_EQ(gaps[1].after, "");
  EXPECT_THAT(longest_gaps(RankRecording{}, trace, 10), IsEmpty());
}

TEST(PeerCopies, StandApartFromOtherCopies) {
  const PeerCopies copies = peer_copies(
      recorded(
          HandMade{}.kernel("gemm", 0, 100).copy(90, 130).peer_copy(80, 120).peer_copy(110, 140)),
      trace);
  EXPECT_EQ(copies.count, 2);
  EXPECT_EQ(copies.total_ns, 60);
  EXPECT_EQ(copies.exposed_ns, 40);
}

TEST(PeerCopies, OfSpansAreWhatLiesInThem) {
  const PeerCopies copies = peer_copies(
      recorded(HandMade{}.kernel("gemm", 0, 100).peer_copy(80, 120).peer_copy(300, 310)),
      std::vector<Span>{{90, 110}});
  EXPECT_EQ(copies.count, 1);
  EXPECT_EQ(copies.total_ns, 20);
  EXPECT_EQ(copies.exposed_ns, 10);
}

/// Two ranks with two steps; the slower rank's last 3 and 5 ms.
Recording two_ranks() {
  Recording recording;
  recording.world_size = 4;
  for (const int slower : {0, 1'000'000}) {
    recording.ranks.push_back(recorded(HandMade{}
                                           .kernel("gemm", 0, 1000)
                                           .step("ProfilerStep#1", 0, 2'000'000 + slower)
                                           .step("ProfilerStep#2", 4'000'000, 8'000'000 + slower)
                                           .step(slower > 0 ? "A" : "B", 9'000'000, 9'900'000)));
    recording.ranks.back().timeline.device_name = "NVIDIA H100 80GB HBM3";
  }
  return recording;
}

std::optional<Mfu> mfu_of(const Recording& recording, const WorkOfStep& work,
                          const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> all{"traces"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return model_flops_utilization(recording, work,
                                 analyze::choose_windows(recording, analyze::parse_options(all)));
}

TEST(ModelFlopsUtilization, ComparesFlopsWithThePeakOfAllDevices) {
  const auto mfu = mfu_of(two_ranks(), {.flops = 4e12, .peak_tflops = 500});
  ASSERT_TRUE(mfu);
  EXPECT_EQ(mfu->num_steps, 2);
  EXPECT_EQ(mfu->step_us, 4000);
  EXPECT_EQ(mfu->num_devices, 4);
  EXPECT_DOUBLE_EQ(mfu->tflops_per_device, 250);
  EXPECT_DOUBLE_EQ(mfu->mfu_causal_pct, 50);
  EXPECT_DOUBLE_EQ(mfu->mfu_full_pct, 50);
  EXPECT_EQ(mfu->peak_source, "user");
}

/// Forward and backward of Llama-3-8B, whose FLOPs per token at 8192 are known: 57.91e9 in full,
/// 51.47e9 causal (6 x 7.505e9 matrix elements and 12 x 32 x 4096 x 8192, half of it if causal).
TEST(ModelFlopsUtilization, TakesAModelAtItsTokens) {
  const auto mfu = mfu_of(two_ranks(), {.model = "llama3-8b", .tokens = 12288});
  ASSERT_TRUE(mfu);
  EXPECT_NEAR(mfu->flops_full / 12288 / 1e9, 57.91, 0.005);
  EXPECT_NEAR(mfu->flops_causal / 12288 / 1e9, 51.47, 0.005);
  EXPECT_EQ(mfu->peak_tflops, 989.4);
  EXPECT_DOUBLE_EQ(mfu->tokens_per_s, 12288 / 4e-3);
  EXPECT_DOUBLE_EQ(mfu->mfu_full_pct, 100 * mfu->flops_full / 4e-3 / (4 * 989.4e12));
  const auto shorter = mfu_of(two_ranks(), {.model = "llama3-8b", .tokens = 12288, .seq = 4096});
  EXPECT_NEAR(shorter->flops_full / 12288 / 1e9, 51.47, 0.005);
}

/// The steps last 3 and 5 ms on the slower rank.
TEST(ModelFlopsUtilization, IsOfTheChosenSteps) {
  const WorkOfStep work{.flops = 4e12, .peak_tflops = 500};
  const auto second = mfu_of(two_ranks(), work, {"--steps", "2"});
  EXPECT_EQ(second->num_steps, 1);
  EXPECT_EQ(second->step_us, 5000);
  EXPECT_DOUBLE_EQ(second->tflops_per_device, 200);
  // A step that the window cuts is none.
  const auto window = mfu_of(two_ranks(), work, {"--window", "0,6000"});
  EXPECT_EQ(window->num_steps, 1);
  EXPECT_EQ(window->step_us, 3000);
  const auto part = mfu_of(two_ranks(), work, {"--window", "0,2000"});
  EXPECT_EQ(part->num_steps, 0);
  EXPECT_EQ(part->step_us, 2000);
  EXPECT_THAT(part->note, HasSubstr("window:0-2000us is taken for one"));
}

TEST(ModelFlopsUtilization, WithoutStepsTheTraceIsOne) {
  Recording recording;
  recording.ranks.push_back(recorded(HandMade{}.kernel("gemm", 0, 1'000'000)));
  const auto mfu = mfu_of(recording, {.flops = 1e9, .peak_tflops = 1});
  ASSERT_TRUE(mfu);
  EXPECT_EQ(mfu->step_us, 1000);
  EXPECT_EQ(mfu->num_steps, 0);
  EXPECT_THAT(mfu->note, HasSubstr("whole trace"));
  EXPECT_DOUBLE_EQ(mfu->mfu_full_pct, 100);
}

std::string refusal(const Recording& recording, const WorkOfStep& work) {
  try {
    (void)mfu_of(recording, work);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelFlopsUtilization, IsRefusedWithoutWhatItNeeds) {
  Recording recording = two_ranks();
  EXPECT_FALSE(mfu_of(recording, {}));
  EXPECT_THAT(refusal(recording, {.model = "llama3-8b"}), HasSubstr("--tokens"));
  EXPECT_THAT(refusal(recording, {.tokens = 5}), HasSubstr("--model"));
  EXPECT_THAT(refusal(recording, {.model = "llama3-8b", .tokens = 5, .flops = 1}),
              HasSubstr("leave out"));
  EXPECT_THAT(refusal(recording, {.model = "lama3-8b", .tokens = 5}), HasSubstr("llama3-8b"));
  EXPECT_THAT(refusal(recording, {.peak_tflops = 5}), HasSubstr("--flops"));
  recording.ranks[1].timeline.device_name = "AMD Instinct MI250X";
  EXPECT_THAT(refusal(recording, {.flops = 1}), HasSubstr("several devices"));
  recording.ranks[0].timeline.device_name = "AMD Instinct MI250X";
  EXPECT_THAT(refusal(recording, {.flops = 1}), HasSubstr("--peak-tflops"));
  for (RankRecording& rank : recording.ranks) rank.timeline.device_name.clear();
  EXPECT_THAT(refusal(recording, {.flops = 1}), HasSubstr("does not name its device"));
}

}  // namespace
}  // namespace shardmark::bench
