#include "bench/analyze/options.hpp"

#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::analyze {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string problem_of(const std::vector<std::string>& arguments) {
  try {
    (void)parse_options(arguments);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AnalyzeOptions, AFolderAloneIsEnough) {
  const Options options = parse_options({"traces/"});
  EXPECT_THAT(options.inputs, ElementsAre("traces/"));
  EXPECT_EQ(options.rule, CommRule::automatic);
  EXPECT_EQ(options.steps.kind, StepChoice::Kind::all);
  EXPECT_FALSE(options.cuts());
  EXPECT_FALSE(options.diff);
}

TEST(AnalyzeOptions, InputsStandAnywhereAndOptionsRepeat) {
  const Options options = parse_options({"a.json", "--comm-pattern", "mine", "b.json", "--axis-of",
                                         "3=tp", "--comm-pattern=his", "--axis-of", "x=y=dp"});
  EXPECT_THAT(options.inputs, ElementsAre("a.json", "b.json"));
  EXPECT_THAT(options.comm_patterns, ElementsAre("mine", "his"));
  EXPECT_THAT(options.axis_of, ElementsAre(Pair("3", "tp"), Pair("x=y", "dp")));
}

TEST(AnalyzeOptions, StepsAreNumbersRangesOrTheLast) {
  const StepChoice numbers = parse_options({"t", "--steps", "552-554,560"}).steps;
  EXPECT_EQ(numbers.kind, StepChoice::Kind::numbers);
  EXPECT_THAT(numbers.ranges, ElementsAre(Pair(552, 554), Pair(560, 560)));
  EXPECT_TRUE(numbers.cuts());
  const StepChoice last = parse_options({"t", "--steps", "last:3"}).steps;
  EXPECT_EQ(last.kind, StepChoice::Kind::last);
  EXPECT_EQ(last.num_last, 3);
  EXPECT_FALSE(parse_options({"t", "--steps", "none"}).steps.cuts());
  EXPECT_FALSE(parse_options({"t", "--steps", "all"}).steps.cuts());
  for (const std::string wrong : {"last:0", "last:", "5-", "-5", "x", "1,,2", "7-6", "1-2-3", ""})
    EXPECT_THAT(problem_of({"t", "--steps=" + wrong}), HasSubstr("--steps")) << wrong;
  EXPECT_THAT(problem_of({"t", "--steps=5-"}), HasSubstr("'5-' is not the number of a step"));
  EXPECT_THAT(problem_of({"t", "--steps=1,-5"}), HasSubstr("'-5' is not the number of a step"));
}

TEST(AnalyzeOptions, AWindowIsExactToTheNanosecond) {
  const Options options = parse_options({"t", "--window", "0.001,1222847.123"});
  ASSERT_TRUE(options.window);
  EXPECT_EQ(options.window->start_ns, 1);
  EXPECT_EQ(options.window->end_ns, 1222847123);
  EXPECT_TRUE(options.cuts());
  for (const std::string wrong : {"5", "5,4", "5,5", "1,2,3", "a,b", "-1,5", "0,1e300"})
    EXPECT_THAT(problem_of({"t", "--window", wrong}), HasSubstr("--window")) << wrong;
  EXPECT_THAT(problem_of({"t", "--window", "5,4"}), HasSubstr("try 4,5"));
  EXPECT_THAT(problem_of({"t", "--window", "5,5"}), HasSubstr("has no length; try 5,1005.000"));
}

TEST(AnalyzeOptions, WhatDoesNotFitTogetherIsRefused) {
  EXPECT_THAT(problem_of({}), HasSubstr("give files, a folder or a glob"));
  EXPECT_THAT(problem_of({"a", "--diff"}), HasSubstr("--diff compares two inputs"));
  EXPECT_THAT(problem_of({"a", "b", "c", "--diff"}), HasSubstr("quote a glob"));
  EXPECT_THAT(problem_of({"a", "b", "--diff", "--csv", "x"}), HasSubstr("leave out --csv"));
  EXPECT_EQ(problem_of({"a", "b", "--diff", "--json", "x"}), "accepted");
  EXPECT_THAT(problem_of({"a", "--model", "llama3-8b"}), HasSubstr("--tokens 64k"));
  EXPECT_THAT(problem_of({"a", "--model", "llama3-9b"}), HasSubstr("llama3-8b"));
  EXPECT_THAT(problem_of({"a", "--tokens", "64k"}), HasSubstr("add --model"));
  EXPECT_THAT(problem_of({"a", "--peak-tflops", "989"}), HasSubstr("add --model"));
  EXPECT_THAT(problem_of({"a", "--num-devices", "8"}), HasSubstr("add --model"));
  EXPECT_THAT(problem_of({"a", "--flops", "1e15", "--tokens", "8"}), HasSubstr("--flops"));
  EXPECT_THAT(problem_of({"a", "--flops", "0"}), HasSubstr("above 0"));
  EXPECT_EQ(problem_of({"a", "--flops", "1e15", "--num-devices", "8"}), "accepted");
}

TEST(AnalyzeOptions, WhatWouldDoNothingIsRefused) {
  for (const std::string option : {"--limit-bubble", "--warn-communication", "--flops"})
    EXPECT_THAT(problem_of({"a", "b", "--diff", option, "30"}),
                HasSubstr("leave out " + option + ", which would do nothing"));
  EXPECT_THAT(problem_of({"a", "b", "--diff", "--axis-of", "3=tp", "--out=x"}),
              HasSubstr("leave out --out, --axis-of"));
  EXPECT_EQ(problem_of({"a", "b", "--diff", "--steps", "5", "--comm-pattern", "x", "--top", "3"}),
            "accepted");
  EXPECT_THAT(problem_of({"a", "--dtype", "bf16"}), HasSubstr("which --dtype is about"));
  EXPECT_THAT(problem_of({"a", "--dtype", "f16", "--seq", "8k"}),
              HasSubstr("which --seq, --dtype are about"));
  EXPECT_THAT(problem_of({"a", "--flops", "1", "--peak-tflops", "9", "--dtype", "f16"}),
              HasSubstr("--dtype chooses a peak"));
  EXPECT_EQ(problem_of({"a", "--flops", "1", "--dtype", "f16"}), "accepted");
  EXPECT_THAT(problem_of({"a", "--limit-bubble", "120"}), HasSubstr("more than 100 percent"));
  EXPECT_EQ(problem_of({"a", "--limit-communication", "100"}), "accepted");
}

TEST(AnalyzeOptions, AStepHasAWholeSequence) {
  EXPECT_THAT(problem_of({"a", "--model", "llama3-8b", "--tokens", "100", "--seq", "8k"}),
              HasSubstr("--tokens 100 is less than one sequence of 8192;"));
  EXPECT_THAT(problem_of({"a", "--model", "llama3-8b", "--tokens", "4k"}),
              HasSubstr("or --seq N, at most 4096"));
  EXPECT_EQ(problem_of({"a", "--model", "llama3-8b", "--tokens", "4k", "--seq", "4k"}), "accepted");
}

TEST(AnalyzeOptions, WrongValuesSayWhatWouldWork) {
  EXPECT_THAT(problem_of({"a", "--comm-pattern", ""}), HasSubstr("is in every name"));
  EXPECT_THAT(problem_of({"a", "--json", "-"}), HasSubstr("'-' is no file"));
  EXPECT_THAT(problem_of({"a", "--model", "nope"}), HasSubstr("shardmark-tp --list-models"));
  EXPECT_EQ(
      problem_of({"a", "--comm-pattern", "x", "--comm-pattern", "y", "--csv", "a", "--csv", "b"}),
      "--csv is given more than once; give one value");

  EXPECT_THAT(problem_of({"a", "--comm-rule", "ncc"}), HasSubstr("did you mean nccl"));
  EXPECT_THAT(problem_of({"a", "--axis-of", "tp"}), HasSubstr("try 3=tp"));
  EXPECT_THAT(problem_of({"a", "--axis-of", "=tp"}), HasSubstr("try 3=tp"));
  EXPECT_THAT(problem_of({"a", "--axis-of", "3=sp"}), HasSubstr("is none of tp, pp, dp, cp, ep"));
  EXPECT_THAT(problem_of({"a", "--axis-of", "3=tp", "--axis-of", "3=dp"}),
              HasSubstr("more than once"));
  EXPECT_THAT(problem_of({"a", "--top", "1", "--top", "2"}), HasSubstr("more than once"));
  EXPECT_THAT(problem_of({"a", "--threads", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(problem_of({"a", "--out", ""}), HasSubstr("needs the name"));
  EXPECT_THAT(problem_of({"a", "--csv", ""}), HasSubstr("needs the name"));
  EXPECT_THAT(problem_of({"a", "--range", ""}), HasSubstr("needs the name"));
  EXPECT_THAT(problem_of({"a", "--frob"}), HasSubstr("unknown option --frob"));
  EXPECT_THAT(problem_of({"a", "--step", "1"}), HasSubstr("did you mean --steps"));
}

TEST(AnalyzeOptions, HelpIsTheGoldenText) {
  EXPECT_EQ(parse_options({"--help"}).print,
            read_file(SHARDMARK_SOURCE_DIR "/tests/golden/shardmark-analyze_help.txt"))
      << "if the change is wanted: shardmark-analyze --help > "
         "tests/golden/shardmark-analyze_help.txt";
}

TEST(AnalyzeOptions, HelpShowsAnExampleOfEveryOption) {
  const std::string help = parse_options({"-h"}).print;
  std::size_t num_options = 0;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos;
       at = help.find("\n  -", at + 1)) {
    const std::string name = help.substr(at + 3, help.find_first_of(" \n,", at + 3) - at - 3);
    if (name == "-h") continue;
    EXPECT_THAT(help, HasSubstr("example: " + name));
    ++num_options;
  }
  EXPECT_GT(num_options, 25U);
}

}  // namespace
}  // namespace shardmark::bench::analyze
