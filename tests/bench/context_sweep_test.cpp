#include "bench/context/sweep.hpp"
#include "core/error.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::context {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Sweep sweep_of(const std::vector<std::string>& arguments, int world_size) {
  return expand(parse_options(arguments), world_size);
}

std::string problem_of(const std::vector<std::string>& arguments, int world_size) {
  try {
    (void)sweep_of(arguments, world_size);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<std::string> splits_of(const Sweep& sweep) {
  std::vector<std::string> list;
  for (const Case& config : sweep.cases) list.push_back(describe_split(config.layer.parallel));
  return list;
}

TEST(ContextSweep, WhatMeansNothingIsOneRow) {
  const Sweep sweep = sweep_of({"--kind", "ring,ulysses,all-gather", "--order",
                                "contiguous,zigzag,striped", "--overlap", "both"},
                               2);
  EXPECT_THAT(splits_of(sweep),
              ElementsAre("tp 1", "cp 2 ring contiguous", "cp 2 ring contiguous overlap",
                          "cp 2 ring zigzag", "cp 2 ring zigzag overlap", "cp 2 ring striped",
                          "cp 2 ring striped overlap", "cp 2 ulysses", "cp 2 ulysses overlap",
                          "cp 2 all-gather contiguous", "cp 2 all-gather contiguous overlap",
                          "cp 2 all-gather zigzag", "cp 2 all-gather zigzag overlap",
                          "cp 2 all-gather striped", "cp 2 all-gather striped overlap"));
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("cp 1 exchanges nothing: its 18 variants")));
  EXPECT_THAT(sweep.notices, Contains(HasSubstr("its 3 orders are one row")));
}

TEST(ContextSweep, TheAcceptanceSweepHasEveryShapeAndSplitOnce) {
  const Sweep sweep = sweep_of(
      {"--kind", "ring,ulysses,all-gather", "--order", "contiguous,zigzag,striped", "--seq",
       "4k,16k", "--heads", "16", "--kv-heads", "16,4", "--causal", "on", "--phase", "step"},
      2);
  EXPECT_EQ(sweep.cases.size(), 4U * 8U);
  for (const Case& made : sweep.cases) EXPECT_THAT(made.skip_reason, IsEmpty()) << describe(made);
}

TEST(ContextSweep, HybridIsNamedByWhatItIs) {
  const std::vector<std::string> hybrid{"--kind", "hybrid", "--overlap", "off", "--cp"};
  const auto split = [&](const std::string& cp, const std::string& ulysses, int world) {
    std::vector<std::string> arguments = hybrid;
    arguments.insert(arguments.end(), {cp, "--ulysses", ulysses});
    return splits_of(sweep_of(arguments, world)).back();
  };
  EXPECT_EQ(split("4", "2", 4), "cp 4 hybrid 2 inner zigzag");
  EXPECT_EQ(split("2", "2", 2), "cp 2 ulysses");
  EXPECT_EQ(split("2", "1", 2), "cp 2 ring zigzag");
}

TEST(ContextSweep, ARankOfAnyCaseSeesItsGroups) {
  const Case made = sweep_of({"--cp", "2", "--tp", "2", "--kind", "ring"}, 4).cases.back();
  const Parallel& parallel = made.layer.parallel;
  EXPECT_EQ(parallel.num_ranks(), 4);
  EXPECT_EQ(parallel.context.cp.stride, 2);
  EXPECT_EQ(parallel.at(0, 3).context.cp.position, 1);
}

TEST(ContextSweep, EveryRuleNamesValueAndWayOut) {
  const auto expect = [](const std::vector<std::string>& arguments, int world_size,
                         const std::string& text) {
    EXPECT_THAT(problem_of(arguments, world_size), HasSubstr(text))
        << testing::PrintToString(arguments);
  };
  expect({"--cp", "4"}, 2, "cp 4 x tp 1 needs 4 ranks, but there are 2");
  expect({"--cp", "2"}, 3, "cp 2 x tp 1 does not divide the 3 ranks; try cp 1 or 3");
  expect({"--tp", "3", "--heads", "6"}, 4, "tp 3 does not divide the 4 ranks; start 3 or 6");
  expect({"--cp", "2", "--kind", "ring", "--order", "contiguous", "--seq", "1025"}, 2, "seq 1025");
  expect({"--cp", "2", "--kind", "ring", "--order", "zigzag", "--seq", "1026"}, 2, "seq 1026");
  expect({"--cp", "4", "--kind", "ulysses", "--heads", "2"}, 4, "heads 2");
  expect({"--cp", "2", "--heads", "6", "--kv-heads", "4"}, 2, "kv_heads 4");
  expect({"--cp", "2", "--seqlens", "1k,3k", "--seq", "2k"}, 2, "4096");
  expect({"--cp", "4", "--kind", "hybrid", "--ulysses", "3"}, 4, "ulysses 3");
  expect({"--cp", "1", "--seq", "2000m", "--heads", "1m"}, 1, "make tensors of");
}

TEST(ContextSweep, TheRowAtCp1IsNotEnoughWithoutCp) {
  EXPECT_THAT(problem_of({"--kind", "ring", "--seq", "1000"}, 3), HasSubstr("seq 1000"));
  EXPECT_EQ(problem_of({"--kind", "ring", "--seq", "1000", "--cp", "1,3"}, 3), "accepted");
}

TEST(ContextSweep, UlyssesSaysThatItRunsContiguous) {
  EXPECT_THAT(
      sweep_of({"--kind", "ulysses", "--order", "striped", "--heads", "6", "--seq", "1536"}, 3)
          .notices,
      Contains(HasSubstr("--order striped is not for it")));
  EXPECT_THAT(sweep_of({"--kind", "ulysses", "--order", "contiguous"}, 2).notices,
              testing::Not(Contains(HasSubstr("not for it"))));
}

TEST(ContextSweep, PackedSequencesSayHowLongTheirSumIs) {
  const Sweep sweep = sweep_of({"--cp", "2", "--kind", "ring", "--seqlens", "3k,1k,4k"}, 2);
  EXPECT_EQ(sweep.cases.front().layer.shape.seq, 8192);
  EXPECT_EQ(describe_shape(sweep.cases.front()),
            "attention-core step f32 heads 8 head-dim 128 seq 8192 in 3 sequences batch 1");
}

TEST(ContextSweep, ShapesFollowFromHeads) {
  const auto shape = [](const std::vector<std::string>& arguments) {
    return sweep_of(arguments, 1).cases.front().layer.shape;
  };
  EXPECT_EQ(shape({"--heads", "4", "--head-dim", "64"}).hidden, 256);
  EXPECT_EQ(shape({"--scope", "block", "--hidden", "512", "--heads", "4"}).head_dim, 128);
  EXPECT_EQ(shape({"--scope", "block", "--heads", "4", "--ffn", "100"}).ffn, 100);
  EXPECT_EQ(shape({"--scope", "attention,block", "--hidden", "512", "--heads", "8"}).hidden, 1024)
      << "attention alone has none";
}

TEST(ContextSweep, AlgorithmsThatApplyNowhereAreRefused) {
  const auto problem = [](const std::string& kinds, const std::string& algorithm) {
    return problem_of(
        {"--cp", "3", "--kind", kinds, "--heads", "3", "--seq", "36", "--algorithm", algorithm}, 3);
  };
  EXPECT_THAT(problem("ring", "cp=ring"), HasSubstr("no collective runs over axis cp"));
  EXPECT_THAT(problem("ulysses", "tp=ring"), HasSubstr("no collective runs over axis tp"));
  EXPECT_THAT(
      problem("ulysses", "cp=binomial"),
      HasSubstr(
          "what runs over cp here is all_to_all; take one of bruck, native, pairwise, two_level"));
  EXPECT_EQ(problem("ring,ulysses", "cp=pairwise"), "accepted");
  EXPECT_EQ(problem("all-gather", "cp=ring"), "accepted");
}

TEST(ContextSweep, HeadChunksDivideTheHeadsAfterTheExchange) {
  const auto chunks = [](const std::string& kind, const std::string& heads,
                         const std::string& kv_heads) {
    return sweep_of({"--kind", kind, "--cp", "2", "--heads", heads, "--kv-heads", kv_heads}, 2)
        .cases.back()
        .layer.parallel.context.head_chunks;
  };
  EXPECT_EQ(chunks("ulysses", "8", "8"), 4);
  EXPECT_EQ(chunks("ulysses", "12", "12"), 3);
  EXPECT_EQ(chunks("ulysses", "16", "4"), 4) << "two chunks share a KV head";
  EXPECT_EQ(chunks("ulysses", "24", "6"), 3);
  EXPECT_EQ(chunks("all-gather", "12", "6"), 2);
  EXPECT_EQ(chunks("all-gather", "12", "3"), 1);
  EXPECT_EQ(chunks("ring", "8", "8"), 1);
}

TEST(ContextSweep, HybridSaysHowManyChunksTravelWithoutSharingAKvHead) {
  const auto hybrid = [](const std::string& kv_heads) {
    return sweep_of({"--kind", "hybrid", "--cp", "4", "--heads", "16", "--kv-heads", kv_heads}, 4);
  };
  const auto chunks = [&](const std::string& kv_heads) {
    return hybrid(kv_heads).cases.back().layer.parallel.context.head_chunks;
  };
  EXPECT_EQ(chunks("16"), 4);
  EXPECT_EQ(chunks("4"), 2);
  EXPECT_EQ(chunks("2"), 1);
  EXPECT_EQ(chunks("1"), 1);
  EXPECT_THAT(hybrid("16").notices, IsEmpty());
  EXPECT_THAT(hybrid("2").notices,
              ElementsAre("16 heads with 2 KV heads travel at cp 4 hybrid in 1 chunk: 4 do not "
                          "divide them so that none shares a KV head with another"));
}

}  // namespace
}  // namespace shardmark::bench::context
