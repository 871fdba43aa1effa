#include "bench/harness/dry_run.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <limits>
#include <sstream>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string dry_run_text(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  std::ostringstream out;
  EXPECT_TRUE(dry_run(out, options, expand(options, std::numeric_limits<int>::max())));
  return out.str();
}

TEST(DryRun, ShowsWorkBytesMemoryAndChecks) {
  const std::string text = dry_run_text({"--tp", "2", "--hidden", "256", "--seq", "64"});
  EXPECT_THAT(text, AllOf(HasSubstr("operations of rank 0"), HasSubstr("GFLOP causal"),
                          HasSubstr("forward 2 all-reduce, backward 2 all-reduce: 262.14 kB by "
                                    "formula, 262.14 kB by operations"),
                          HasSubstr("ranks 0-1"),
                          HasSubstr("no race, all collectives match, no deadlock")));
}

TEST(DryRun, PlansOfAnAlgorithmCount) {
  const std::string text = dry_run_text(
      {"--tp", "3", "--hidden", "192", "--heads", "3", "--seq", "64", "--algorithm", "tp=ring"});
  EXPECT_THAT(text, AllOf(HasSubstr("send_recv"), HasSubstr("combine"),
                          testing::Not(HasSubstr("    all_reduce")),
                          HasSubstr("no race, all collectives match, no deadlock")));
}

TEST(DryRun, VerboseListsEveryOperation) {
  const std::vector<std::string> brief{"--tp", "2", "--hidden", "256", "--seq", "64"};
  std::vector<std::string> verbose = brief;
  verbose.emplace_back("--verbose");
  EXPECT_THAT(dry_run_text(verbose), HasSubstr(" compute step/block0/mlp/fc1 matmul f32 "));
  EXPECT_THAT(dry_run_text(brief), testing::Not(HasSubstr("step/block0/mlp/fc1 matmul f32")));
}

TEST(DryRun, SaysWhyARowIsSkipped) {
  EXPECT_THAT(dry_run_text({"--tp", "1,3", "--hidden", "256", "--seq", "64"}),
              HasSubstr("skipped: ffn 1024 is not divisible by tp 3"));
}

TEST(DryRun, ALargeModelAnswersAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text =
      dry_run_text({"--model", "llama3-70b", "--tp", "1,2,4,8", "--seq", "8k"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{2});
  EXPECT_THAT(text, AllOf(HasSubstr("tp 8"), HasSubstr("ranks 0-7"), HasSubstr(" TFLOP causal"),
                          testing::Not(HasSubstr(" GFLOP causal"))));
}

}  // namespace
}  // namespace shardmark::bench
