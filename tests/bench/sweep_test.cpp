#include "bench/harness/sweep.hpp"

#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <set>

namespace shardmark::bench {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Sweep sweep_of(const std::vector<std::string>& arguments, int world_size) {
  return expand(parse_options(arguments), world_size);
}

std::string problem_of(const std::vector<std::string>& arguments, int world_size) {
  return test::refusal([&] { return sweep_of(arguments, world_size); });
}

std::vector<std::string> names(const Sweep& sweep) {
  std::vector<std::string> list;
  for (const Case& config : sweep.cases) list.push_back(describe(config));
  return list;
}

TEST(Sweep, TpVariesWithinAShapeAndTp1IsOneRow) {
  const Sweep sweep = sweep_of({"--tp", "2,1", "--hidden", "1k,2k", "--seq", "64",
                                "--sequence-parallel", "off,on", "--overlap", "off,on"},
                               2);
  EXPECT_THAT(names(sweep),
              ElementsAre("block step f32 hidden 1024 seq 64 batch 1 tp 1",
                          "block step f32 hidden 1024 seq 64 batch 1 tp 2",
                          "block step f32 hidden 1024 seq 64 batch 1 tp 2 overlap",
                          "block step f32 hidden 1024 seq 64 batch 1 tp 2 sp",
                          "block step f32 hidden 1024 seq 64 batch 1 tp 2 sp overlap",
                          "block step f32 hidden 2048 seq 64 batch 1 tp 1",
                          "block step f32 hidden 2048 seq 64 batch 1 tp 2",
                          "block step f32 hidden 2048 seq 64 batch 1 tp 2 overlap",
                          "block step f32 hidden 2048 seq 64 batch 1 tp 2 sp",
                          "block step f32 hidden 2048 seq 64 batch 1 tp 2 sp overlap"));
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("tp 1 communicates nothing: its 4 variants")));
}

TEST(Sweep, TheAcceptanceSweepHas20Rows) {
  const Sweep sweep =
      sweep_of({"--block", "block", "--tp", "1,2", "--hidden", "1k,2k", "--seq", "512,1k",
                "--sequence-parallel", "off,on", "--overlap", "off,on", "--phase", "step"},
               2);
  EXPECT_EQ(sweep.cases.size(), 20U);
  std::set<std::string> different;
  for (const std::string& name : names(sweep)) different.insert(name);
  EXPECT_EQ(different.size(), 20U);
}

TEST(Sweep, WhatDoesNotSplitIsSkippedWithItsReason) {
  const Sweep sweep = sweep_of({"--tp", "1,2,3,4", "--hidden", "1k"}, 3);
  ASSERT_EQ(sweep.cases.size(), 4U);
  EXPECT_THAT(sweep.cases[0].skip_reason, IsEmpty());
  EXPECT_THAT(sweep.cases[1].skip_reason, IsEmpty());
  EXPECT_THAT(sweep.cases[2].skip_reason, HasSubstr("ffn 4096 is not divisible by tp 3"));
  EXPECT_THAT(sweep.cases[3].skip_reason, HasSubstr("tp 4 needs 4 ranks, but there are 3"));
}

TEST(Sweep, EveryRuleNamesValueAndWayOut) {
  const auto expect = [](const std::vector<std::string>& arguments, const std::string& text) {
    EXPECT_THAT(problem_of(arguments, 2), HasSubstr(text));
  };
  expect({"--tp", "2", "--hidden", "1000"}, "hidden 1000 is not a multiple of 128");
  expect({"--tp", "2", "--hidden", "64"}, "try hidden 128");
  expect({"--tp", "2", "--hidden", "1000", "--heads", "3"}, "try heads 2 or 4");
  expect({"--tp", "2", "--heads", "1"}, "heads 1 is not divisible by tp 2");
  expect({"--tp", "2", "--kv-heads", "3"}, "kv_heads 3");
  expect({"--tp", "2", "--ffn", "1001"}, "ffn 1001 is not divisible by tp 2; try 1000 or 1002");
  expect({"--tp", "2", "--seq", "63", "--sequence-parallel", "on"}, "seq 63");
  expect({"--tp", "2", "--block", "model", "--vocab", "333"}, "vocab 333 is not divisible by tp 2");
  expect({"--tp", "4"}, "tp 4 needs 4 ranks, but there are 2");
  expect({"--tp", "1", "--seq", "2000m", "--hidden", "1m"}, "make tensors of");
  expect({"--tp", "3,4"}, "no combination of the options can run");
}

TEST(Sweep, LinearsDoNotCareAboutHeads) {
  EXPECT_EQ(problem_of({"--block", "mlp,linear-row", "--hidden", "100", "--tp", "2"}, 2),
            "accepted");
}

TEST(Sweep, AModelsVocabularyIsPaddedAndShown) {
  const Sweep sweep =
      sweep_of({"--block", "model", "--model", "gpt3-125m", "--seq", "128", "--tp", "1,2"}, 2);
  EXPECT_EQ(sweep.cases[0].layer.shape.vocab, 50304);
  EXPECT_EQ(sweep.cases[1].layer.shape.vocab, 50432);
  EXPECT_EQ(sweep.cases[1].vocab_unpadded, 50257);
  EXPECT_EQ(shape_key(sweep.cases[0]), shape_key(sweep.cases[1]));
  EXPECT_THAT(sweep.notices,
              Contains(HasSubstr("50257 padded to 50432, a multiple of 128 x tp 2")));
}

TEST(Sweep, AGivenVocabularyIsNot) {
  const Sweep sweep =
      sweep_of({"--block", "model", "--model", "gpt3-125m", "--vocab", "50258", "--tp", "2"}, 2);
  EXPECT_EQ(sweep.cases[0].layer.shape.vocab, 50258);
}

TEST(Sweep, SingleValuesOfAModelCanBeReplaced) {
  const Sweep sweep = sweep_of(
      {"--model", "llama3-8b", "--seq", "256", "--ffn", "4k", "--norm", "layer", "--tp", "2"}, 2);
  const ModelShape& shape = sweep.cases[0].layer.shape;
  EXPECT_EQ(shape.seq, 256);
  EXPECT_EQ(shape.ffn, 4096);
  EXPECT_EQ(shape.norm, NormKind::layer);
  EXPECT_EQ(shape.hidden, 4096);
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.mlp, MlpKind::swiglu);
  EXPECT_FALSE(shape.biases);
}

TEST(Sweep, ChunksAreWhatDividesTheTokens) {
  const Sweep sweep = sweep_of({"--tp", "2", "--overlap", "on", "--seq", "66"}, 2);
  EXPECT_EQ(sweep.cases[0].layer.parallel.chunks, 3);
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("66 tokens at tp 2 overlap in 3 chunks")));
}

TEST(Sweep, KeepGatheredNeedsSequenceParallelism) {
  const Sweep sweep =
      sweep_of({"--tp", "2", "--sequence-parallel", "off,on", "--keep-gathered"}, 2);
  EXPECT_FALSE(sweep.cases[0].layer.parallel.keep_gathered);
  EXPECT_TRUE(sweep.cases[1].layer.parallel.keep_gathered);
}

TEST(Sweep, AlgorithmsThatApplyNowhereAreRefusedAndPartlyAreNoted) {
  const auto expand_with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--hidden", "192", "--heads", "3", "--seq", "96"});
    return expand(parse_options(more), 3);
  };
  const auto problem = [&](const std::vector<std::string>& more) {
    return test::refusal([&] { return expand_with(more); });
  };
  EXPECT_THAT(problem({"--tp", "3", "--algorithm", "cp=ring"}),
              testing::HasSubstr("no collective runs over axis cp"));
  EXPECT_THAT(problem({"--tp", "1", "--algorithm", "tp=ring"}),
              testing::HasSubstr("no collective runs over axis tp"));
  EXPECT_THAT(problem({"--tp", "3", "--algorithm", "tp=bruck"}),
              testing::HasSubstr("what runs over tp here is all_reduce"));
  EXPECT_EQ(problem({"--tp", "3", "--algorithm", "tp=ring"}), "accepted");
  const Sweep sweep =
      expand_with({"--tp", "3", "--sequence-parallel", "off,on", "--algorithm", "tp=bruck"});
  EXPECT_THAT(sweep.notices,
              testing::Contains(testing::HasSubstr("stays native (bruck has none)")));
}

/// As where a tuning table of NCCL has no line for a call: the library's own choice.
TEST(Sweep, AutoSaysForWhichSizesItsTableHasNoRow) {
  Options options = parse_options({"--tp", "3", "--hidden", "192", "--heads", "3", "--seq", "6,96",
                                   "--block", "mlp", "--phase", "forward"});
  options.runner.plans.algorithms = {{Axis::tp, "auto"}};
  const auto notices = [&](std::vector<ChoiceTable::Row> rows) {
    options.runner.plans.table = ChoiceTable{std::move(rows)};
    return expand(options, 3).notices;
  };
  EXPECT_THAT(notices({{Collective::all_reduce, 3, 0, -1, "ring"}}), testing::IsEmpty());
  EXPECT_THAT(notices({{Collective::all_reduce, 3, 0, 4608, "ring"}}),
              testing::ElementsAre("tp=auto: the table has no row for all_reduce on 3 ranks at 1 "
                                   "of 2 sizes (73728 to 73728 B): native is taken there"));
  EXPECT_THAT(notices({{Collective::all_reduce, 2, 0, -1, "ring"}}),
              testing::ElementsAre(testing::HasSubstr("at 2 of 2 sizes (4608 to 73728 B)")));
}

}  // namespace
}  // namespace shardmark::bench
