#include "bench/harness/plan.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Case> cases_of(const std::vector<std::string>& arguments) {
  return expand(parse_options(arguments), 4).cases;
}

const std::vector<Endpoint> one_host{{0, "a", 1}, {1, "a", 2}, {2, "a", 3}, {3, "a", 4}};

TEST(Plan, EstimateCountsTheRanksOfAHost) {
  const std::vector<Case> cases = cases_of({"--tp", "2", "--hidden", "256", "--seq", "64"});
  const MemoryEstimate one = estimate_memory(cases[0], {}, 1);
  const MemoryEstimate two = estimate_memory(cases[0], {}, 2);
  EXPECT_GT(one.per_rank_bytes, 3 * 256 * 256 * 4);
  EXPECT_EQ(two.host_bytes, 2 * one.host_bytes);
}

TEST(Plan, AFullCheckNeedsTheSerialBlockToo) {
  const std::vector<Case> cases = cases_of({"--tp", "2", "--hidden", "256", "--seq", "64"});
  RunnerOptions full;
  full.check = CheckMode::full;
  EXPECT_GT(estimate_memory(cases[0], full, 1).per_rank_bytes,
            2 * estimate_memory(cases[0], {}, 1).per_rank_bytes);
}

TEST(Plan, WhatExceedsMemoryIsSkippedWithTheEstimate) {
  std::vector<Case> cases = cases_of({"--tp", "1,2", "--hidden", "256,2k", "--seq", "64"});
  skip_what_does_not_fit(cases, {}, one_host, 100'000'000);
  ASSERT_EQ(cases.size(), 4U);
  EXPECT_THAT(cases[0].skip_reason, IsEmpty());
  EXPECT_THAT(cases[1].skip_reason, IsEmpty());
  EXPECT_THAT(cases[2].skip_reason,
              AllOf(HasSubstr("GB on one host (1 rank"), HasSubstr("but 0.10 GB are available")));
  EXPECT_THAT(cases[3].skip_reason, HasSubstr("2 ranks"));
}

TEST(Plan, RanksOnOtherHostsDoNotCount) {
  std::vector<Case> cases = cases_of({"--tp", "2", "--hidden", "1k", "--seq", "64"});
  const std::int64_t rank_bytes = estimate_memory(cases[0], {}, 1).per_rank_bytes;
  const std::vector<Endpoint> two_hosts{{0, "a", 1}, {1, "b", 2}};
  skip_what_does_not_fit(cases, {}, two_hosts, rank_bytes);
  EXPECT_THAT(cases[0].skip_reason, IsEmpty());
  skip_what_does_not_fit(cases, {}, one_host, rank_bytes);
  EXPECT_THAT(cases[0].skip_reason, HasSubstr("2 ranks"));
}

TEST(Plan, AFinishedRowIsRecognised) {
  const std::vector<Case> cases = cases_of({"--tp", "1,2"});
  const RunIdentity run{"id", "cpu", "threads"};
  Result first;
  first.config = cases[0];
  first.world_size = 4;
  const std::set<std::string> finished{row_key({first, run})};
  EXPECT_TRUE(is_finished(cases[0], finished, run, {}, 4));
  EXPECT_FALSE(is_finished(cases[1], finished, run, {}, 4));
  EXPECT_FALSE(is_finished(cases[0], finished, run, {}, 2));
}

}  // namespace
}  // namespace shardmark::bench
