#include "tests/pipeline/schedules.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::pipeline {
namespace {

using testing::HasSubstr;
using Kind = ScheduleKind;

std::string refusal(Kind kind, const Request& request) {
  return test::refusal([&] { return generate(kind, request); });
}

TEST(Rules, NameTheValueTheRuleAndWhatWouldWork) {
  EXPECT_EQ(refusal(Kind::dualpipe, {3, 8}),
            "schedule dualpipe: 3 ranks; its two directions meet in the middle, so the number must "
            "be even: 4 would work, and dualpipe-v takes any");
  EXPECT_EQ(refusal(Kind::dualpipe, {4, 6}),
            "schedule dualpipe: 6 micro-batches on 4 ranks; it needs at least 2 per rank: 8 or "
            "more");
  EXPECT_THAT(refusal(Kind::dualpipe, {2, 5}), HasSubstr("must be even: 6 would work"));
  EXPECT_THAT(refusal(Kind::dualpipe_v, {3, 5}), HasSubstr("at least 2 per rank: 6 or more"));
  EXPECT_THAT(refusal(Kind::interleaved, {4, 3}), HasSubstr("at least one per rank: 4 or more"));
  EXPECT_EQ(refusal(Kind::interleaved, {4, 10, 2}),
            "schedule interleaved: 10 micro-batches in groups of 4 leave 2, and the last group "
            "needs at least 4 (the ranks): 8 or 12 micro-batches would work");
  EXPECT_THAT(refusal(Kind::interleaved, {4, 8, 2, 3}), HasSubstr("at least 4 (the ranks)"));
  EXPECT_THAT(refusal(Kind::interleaved, {4, 8, 2, 9}), HasSubstr("at most 8"));
  EXPECT_THAT(refusal(Kind::interleaved, {4, 8, 1}), HasSubstr("--chunks 2 or more"));
  EXPECT_THAT(refusal(Kind::zb_v, {4, 8, 3}), HasSubstr("one down and one up: --chunks 2"));
  EXPECT_EQ(refusal(Kind::interleaved, {3, 6, 2, 0, 5}),
            "schedule interleaved: 5 layers for 6 stages (3 ranks x 2); every stage needs one: at "
            "least 6 layers, or fewer ranks or chunks");
  EXPECT_THAT(refusal(Kind::gpipe, {4, 4, 0, 0, 3}), HasSubstr("at least 4 layers"));
  EXPECT_THAT(refusal(Kind::gpipe, {0, 4}), HasSubstr("0 ranks"));
  EXPECT_THAT(refusal(Kind::gpipe, {3, 0}), HasSubstr("0 micro-batches"));
}

TEST(Rules, AllowTheirLimits) {
  EXPECT_EQ(refusal(Kind::dualpipe, {4, 8}), "accepted");
  EXPECT_EQ(refusal(Kind::dualpipe_v, {3, 6}), "accepted");
  EXPECT_EQ(refusal(Kind::interleaved, {3, 3, 4, 0, 12}), "accepted");
  EXPECT_EQ(refusal(Kind::interleaved, {3, 7, 2, 4}), "accepted");  // a last group of 3
  EXPECT_EQ(refusal(Kind::one_f_one_b, {8, 3, 2}), "accepted");     // chunks are not its business
}

TEST(Rules, EveryScheduleHasAName) {
  for (const ScheduleFacts& facts : schedules()) EXPECT_EQ(facts_of(facts.kind).name, facts.name);
}

// Megatron-LM: the last group may be smaller, with at least p micro-batches.
TEST(Rules, AnInterleavedScheduleWithASmallerLastGroupRuns) {
  for (const auto& [p, m, group] : {std::array{3, 7, 4}, {4, 13, 8}, {2, 9, 3}})
    expect_valid(generate(Kind::interleaved, {p, m, 3, group}));
}

}  // namespace
}  // namespace shardmark::pipeline
