#include "bench/context/options.hpp"
#include "tests/bench/help.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::context {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string problem_of(const std::vector<std::string>& arguments) {
  return test::refusal([&] { return parse_options(arguments); });
}

TEST(ContextOptions, DefaultsCompareTheThreeKindsWithOneRank) {
  const Options options = parse_options({});
  EXPECT_THAT(options.kinds,
              ElementsAre(ContextKind::ring, ContextKind::ulysses, ContextKind::all_gather));
  EXPECT_THAT(options.orders, ElementsAre(TokenOrder::zigzag));
  EXPECT_THAT(options.base.blocks, ElementsAre(BlockKind::attention_core));
  EXPECT_THAT(options.base.overlap, ElementsAre(true));
  EXPECT_THAT(options.base.phases, ElementsAre(Phase::step));
  EXPECT_THAT(cp_degrees(options, 1, 3), ElementsAre(1, 3));
  EXPECT_THAT(cp_degrees(options, 2, 8), ElementsAre(1, 4));
  EXPECT_THAT(cp_degrees(options, 1, 1), ElementsAre(1));
}

TEST(ContextOptions, ListsSweep) {
  const Options options = parse_options({"--kind",
                                         "hybrid,ring",
                                         "--order",
                                         "striped,contiguous",
                                         "--cp",
                                         "4,1",
                                         "--ulysses",
                                         "4",
                                         "--ulysses-outer",
                                         "on",
                                         "--tp",
                                         "1,2",
                                         "--sp",
                                         "off,on",
                                         "--overlap",
                                         "both",
                                         "--seq",
                                         "4k,16k",
                                         "--kv-heads",
                                         "16,4",
                                         "--phase",
                                         "fwd,bwd,step",
                                         "--window",
                                         "512",
                                         "--scope",
                                         "attention,block"});
  EXPECT_THAT(options.kinds, ElementsAre(ContextKind::hybrid, ContextKind::ring));
  EXPECT_THAT(options.orders, ElementsAre(TokenOrder::striped, TokenOrder::contiguous));
  EXPECT_THAT(cp_degrees(options, 1, 8), ElementsAre(1, 4));
  EXPECT_EQ(options.ulysses, 4);
  EXPECT_TRUE(options.ulysses_outer);
  EXPECT_THAT(options.base.overlap, ElementsAre(false, true));
  EXPECT_THAT(options.base.sequence_parallel, ElementsAre(false, true));
  EXPECT_THAT(options.base.kv_heads, ElementsAre(16, 4));
  EXPECT_THAT(options.base.phases, ElementsAre(Phase::forward, Phase::backward, Phase::step));
  EXPECT_THAT(options.window, ElementsAre(512));
}

TEST(ContextOptions, PackedSequencesMayBeEquallyLong) {
  EXPECT_THAT(parse_options({"--seqlens", "1k,1k,2k"}).seqlens, ElementsAre(1024, 1024, 2048));
  EXPECT_THAT(parse_options({}).seqlens, IsEmpty());
}

TEST(ContextOptions, RanksDefaultToWhatTheDegreesNeed) {
  EXPECT_EQ(launch_request(parse_options({"--cp", "1,3", "--tp", "2"})).default_ranks, 6);
  EXPECT_EQ(launch_request(parse_options({})).default_ranks, default_ranks());
  EXPECT_EQ(launch_request(parse_options({})).program, "shardmark-cp");
}

TEST(ContextOptions, BadValuesAreNamedWithTheRuleAndWhatWorks) {
  const auto expect = [](const std::vector<std::string>& arguments, const auto& matcher) {
    EXPECT_THAT(problem_of(arguments), matcher) << testing::PrintToString(arguments);
  };
  expect({"--window", "0"}, AllOf(HasSubstr("--window: '0'"), HasSubstr("at least 1")));
  expect({"--seqlens", "1k,0"}, AllOf(HasSubstr("--seqlens: '0'"), HasSubstr("at least 1")));
  expect({"--cp", "0"}, HasSubstr("at least 1"));
  expect({"--ulysses", "0"}, HasSubstr("at least 1"));
  expect({"--kind", "rings"},
         AllOf(HasSubstr("ring, ulysses, all-gather, hybrid"), HasSubstr("did you mean ring?")));
  expect({"--order", "zig-zag"}, HasSubstr("did you mean zigzag?"));
  expect({"--overlap", "maybe"}, HasSubstr("off, on, both"));
  expect({"--scope", "model"}, HasSubstr("attention, block"));
  expect({"--positions", "learned"}, HasSubstr("none, rotary"));
  expect({"--hedas", "4"}, HasSubstr("did you mean --heads?"));
  expect({"--model", "llama3-8b"}, HasSubstr("unknown option --model"));
}

TEST(ContextOptions, ContradictionsAreRefused) {
  EXPECT_THAT(problem_of({"--resume"}), HasSubstr("--out DIR"));
  EXPECT_THAT(problem_of({"--dump", "d", "--out", "o"}), HasSubstr("leave out one"));
  EXPECT_THAT(problem_of({"--advise", "--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(problem_of({"--advise", "--dump", "d"}), HasSubstr("--dump"));
  EXPECT_THAT(problem_of({"--advise", "--out", "o"}), HasSubstr("--out"));
  EXPECT_THAT(problem_of({"--advise", "--algorithm", "cp=ring"}), HasSubstr("--algorithm"));
}

TEST(ContextOptions, WhatOnlyABlockHasIsRefusedForAttentionAlone) {
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--hidden", "512"},
                                             {"--ffn", "64"},
                                             {"--mlp", "swiglu"},
                                             {"--gelu", "tanh"},
                                             {"--norm", "rms"},
                                             {"--positions", "rotary"},
                                             {"--biases", "off"},
                                             {"--sp", "off,on"}}) {
    EXPECT_THAT(problem_of(option), AllOf(HasSubstr(option[0]), HasSubstr("add --scope block")));
    std::vector<std::string> with_block = option;
    with_block.insert(with_block.end(), {"--scope", "attention,block"});
    EXPECT_EQ(problem_of(with_block), "accepted") << option[0];
  }
  EXPECT_EQ(problem_of({"--sp", "off"}), "accepted");
}

TEST(ContextOptions, HelpIsTheGoldenText) {
  expect_golden_help(Tool::cp, SHARDMARK_SOURCE_DIR, parse_options({"--help"}).base.print);
}

TEST(ContextOptions, HelpShowsAnExampleOfEveryOption) {
  expect_example_of_every_option(parse_options({"-h"}).base.print);
}

}  // namespace
}  // namespace shardmark::bench::context
