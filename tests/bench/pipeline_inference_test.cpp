// --mode infer: options, sweep, what rows say, and the comparison of tp with pp.

#include "bench/harness/predict.hpp"
#include "bench/harness/verdict.hpp"
#include "bench/pipeline/inference.hpp"
#include "bench/pipeline/sweep.hpp"
#include "tests/bench/columns.hpp"
#include "tests/sim/machines.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::pp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> infer(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--mode", "infer"});
  return arguments;
}

std::string problem_of(const std::vector<std::string>& arguments, int world_size = 4) {
  return test::refusal([&] { return expand(parse_options(arguments), world_size); });
}

TEST(InferenceOptions, DefaultsAreBothStepsOfOneAndFourRequests) {
  const Options options = parse_options({"--mode", "infer"});
  EXPECT_THAT(options.steps, ElementsAre(InferenceStep::prefill, InferenceStep::decode));
  EXPECT_THAT(options.micro, ElementsAre(1, 4));
  EXPECT_EQ(options.tokens, 32);
}

TEST(InferenceOptions, WhatTheOtherModeIsForIsRefused) {
  for (const auto& [name, value] : {std::pair{"--schedule", "1f1b"},
                                    {"--chunks", "2"},
                                    {"--p2p", "merged"},
                                    {"--recompute", "full"},
                                    {"--fit", ""},
                                    {"--memory-limit", "4"},
                                    {"--print-schedule", "grid"},
                                    {"--tie-embeddings", "on"},
                                    {"--sequence-parallel", "on"},
                                    {"--dump", "folder"},
                                    {"--dp", "2"},
                                    {"--dp", "1,2"}}) {
    std::vector<std::string> arguments{name};
    if (*value != '\0') arguments.emplace_back(value);
    EXPECT_THAT(problem_of(infer(arguments)),
                AllOf(HasSubstr(name), HasSubstr("--mode infer"), HasSubstr("leave out")));
  }
  EXPECT_THAT(problem_of(infer({"--balance", "measured"})), HasSubstr("give a --split"));
  EXPECT_THAT(problem_of(infer({"--step", "prefill", "--tokens", "3"})), HasSubstr("--tokens"));
  EXPECT_THAT(problem_of(infer({"--tokens", "0"})), HasSubstr("at least 1"));
  EXPECT_THAT(problem_of(infer({"--step", "train"})), HasSubstr("prefill, decode"));
  EXPECT_THAT(problem_of({"--tokens", "3"}), HasSubstr("--tokens is for --mode infer"));
  EXPECT_THAT(problem_of({"--step", "decode"}), HasSubstr("--step is for --mode infer"));
  EXPECT_THAT(problem_of({"--mode", "serve"}), HasSubstr("train, infer"));
  EXPECT_EQ(problem_of(infer({"--dp", "1"})), "accepted");
}

std::vector<std::string> rows_of(const Sweep& sweep) {
  std::vector<std::string> list;
  for (const Case& config : sweep.cases)
    list.push_back(message(describe_pipeline(config), ' ', describe_split(config.layer.parallel),
                           config.skip_reason.empty() ? "" : " -"));
  return list;
}

TEST(InferenceSweep, HasARowPerStepDegreeAndNumberOfRequests) {
  const Sweep sweep =
      expand(parse_options(infer({"--tp", "1,3", "--microbatches", "1,2", "--tokens", "5"})), 3);
  EXPECT_THAT(
      rows_of(sweep),
      ElementsAre("prefill pp 3 requests 1 tp 1", "prefill pp 3 requests 2 tp 1",
                  "prefill pp 1 requests 1 tp 3 -", "prefill pp 1 requests 2 tp 3 -",
                  "decode pp 3 requests 1 tokens 5 tp 1", "decode pp 3 requests 2 tokens 5 tp 1",
                  "decode pp 1 requests 1 tokens 5 tp 3 -",
                  "decode pp 1 requests 2 tokens 5 tp 3 -"));
  const Case& made = sweep.cases[5];
  EXPECT_EQ(made.phase, Phase::forward);
  EXPECT_FALSE(made.layer.is_pipeline());
  EXPECT_EQ(made.layer.inference->requests, 2);
  EXPECT_EQ(made.layer.pipeline.micro, 2);
  EXPECT_THAT(made.layer.pipeline.blocks, ElementsAre(3, 3, 2));
  EXPECT_THAT(sweep.cases[2].skip_reason, HasSubstr("tp 3"));
}

TEST(InferenceSweep, TakesAGivenSplitAndRefusesTooFewLayers) {
  const Sweep sweep = expand(parse_options(infer({"--split", "5,2,1", "--step", "decode"})), 3);
  EXPECT_THAT(sweep.cases.front().layer.pipeline.blocks, ElementsAre(5, 2, 1));
  EXPECT_THAT(problem_of(infer({"--layers", "2"}), 3), HasSubstr("2 layers for 3 stages"));
  EXPECT_THAT(problem_of(infer({"--pp", "5"}), 3), HasSubstr("needs 5 ranks"));
  EXPECT_THAT(problem_of(infer({"--split", "4,5"}), 2), HasSubstr("adds up to 9"));
}

/// A row of two layers that took `iteration_us`.
Result row(InferenceStep step, int pp, int tp, int requests, double iteration_us) {
  Result result;
  result.config.balance = "count";
  result.config.phase = Phase::forward;
  LayerConfig& layer = result.config.layer;
  layer.block = BlockKind::model;
  layer.shape = {.hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 256, .layers = 6};
  layer.shape.seq = 10;
  layer.shape.batch = 3;
  layer.parallel.pp.size = pp;
  layer.parallel.tp.size = tp;
  layer.parallel = layer.parallel.at(0, 0);
  layer.inference = {step, requests, step == InferenceStep::decode ? 4 : 1};
  layer.pipeline.micro = requests;
  layer.pipeline.blocks.assign(static_cast<std::size_t>(pp), 6 / pp);
  result.time = {.p50 = iteration_us, .samples = 10};
  result.inference = InferenceTimes{};
  return result;
}

std::string cell(const std::string& name, const Result& result) {
  return cell_of(Tool::pp, name, result);
}

TEST(InferenceColumns, SayWhatAUserWaitsFor) {
  Result decode = row(InferenceStep::decode, 2, 1, 5, 1000);
  EXPECT_EQ(cell("mode", decode), "infer");
  EXPECT_EQ(cell("step", decode), "decode");
  EXPECT_EQ(cell("tokens", decode), "4");
  EXPECT_EQ(cell("microbatches", decode), "5");
  EXPECT_EQ(cell("phase", decode), "fwd");
  EXPECT_EQ(cell("schedule", decode), "");
  EXPECT_EQ(cell("time_per_token_us", decode), "250");
  EXPECT_EQ(cell("tokens_per_s", decode), "60000") << "5 requests x 3 sequences x 4 tokens in 1 ms";
  EXPECT_EQ(cell("ttft_us", decode), "");
  EXPECT_EQ(cell("hop_us", decode), "") << "several requests hide it";
  EXPECT_EQ(cell("kv_cache_bytes", decode), message(5 * 3 * (3 * 11) * 2 * (2 * 16) * 4));
  EXPECT_EQ(cell("bubble_us", decode), "");
  decode.work.resize(2);
  EXPECT_EQ(cell("rank_activation_bytes", decode), "0+0");
  EXPECT_EQ(cell("rank_activation_claim_bytes", decode), "") << "nothing is held for a backward";
  Result prefill = row(InferenceStep::prefill, 2, 1, 5, 1000);
  prefill.inference = {0.6, 7.5};
  EXPECT_EQ(cell("ttft_us", prefill), "600");
  EXPECT_EQ(cell("tokens_per_s", prefill), "150000") << "prompts of 10 tokens";
  EXPECT_EQ(cell("hop_us", prefill), "7.5");
  EXPECT_EQ(cell("tokens", prefill), "");
  EXPECT_EQ(cell("time_per_token_us", prefill), "");
  Result training;
  training.time.p50 = 1;
  EXPECT_EQ(cell("mode", training), "train");
  for (const char* name : {"step", "tokens", "ttft_us", "tokens_per_s", "hop_us", "kv_cache_bytes"})
    EXPECT_EQ(cell(name, training), "") << name;
}

RankTrace::Interval interval(OpKind kind, std::uint32_t op, double start_us, double end_us,
                             int request = 0) {
  return {.path = message("fwd/request", request, "/block0"),
          .lane = kind == OpKind::compute ? Lane::compute : Lane::pp_bwd_recv,
          .kind = kind,
          .op_seq = op,
          .start_us = start_us,
          .end_us = end_us};
}

/// Two passes over three stages: on stage s a pass takes 10 + s us, a message 2 us.
TEST(InferenceTimes, AHopIsTheTimeOnNoStage) {
  constexpr auto compute = OpKind::compute, transfer = OpKind::communication;
  const Result single = row(InferenceStep::prefill, 3, 1, 1, 100);
  LayerConfig layer = single.config.layer;
  layer.inference = {InferenceStep::decode, 1, 2};
  std::vector<RankTrace> traces(3);
  double now_us = 5;
  for (int pass = 0; pass < 2; ++pass)
    for (int stage = 0; stage < 3; ++stage) {
      RankTrace& trace = traces[static_cast<std::size_t>(stage)];
      trace.rank = stage;
      const auto op = static_cast<std::uint32_t>(10 * pass);
      // Another clock on each rank, two tiles of an op, and a gap in between.
      const double from_us = now_us + 1000 * stage, to_us = from_us + 10 + stage;
      trace.intervals.push_back(interval(compute, op, from_us, from_us + 2));
      trace.intervals.push_back(interval(compute, op, from_us + 2, from_us + 4));
      trace.intervals.push_back(interval(compute, op + 1, from_us + 6, to_us));
      now_us += 10 + stage + 2;
      if (stage == 2)
        traces[0].intervals.push_back(interval(transfer, op + 2, now_us - 20, now_us));
    }
  EXPECT_NEAR(inference_times(layer, traces).hop_us, 2, 1e-9);
  EXPECT_EQ(inference_times(layer, traces).mean_done, 1);
  for (RankTrace& trace : traces) trace.window_us = 100;
  traces[1].intervals.push_back(interval(transfer, 40, 1060, 1070));
  traces[1].intervals.back().lane = Lane::tp;
  const InferenceTimes shares = inference_times(layer, traces);
  EXPECT_NEAR(shares.in_collectives, 0.1 / 3, 1e-9);
  EXPECT_NEAR(shares.on_stage, (2 * (8 + 9 + 10) + 10) / 300.0, 1e-9) << "gaps of 2 us left out";
  layer.inference->requests = 2;
  layer.inference->tokens = 1;
  traces[2].intervals.push_back(interval(compute, 30, 2000, 4000, 1));
  const InferenceTimes two = inference_times(layer, traces);
  EXPECT_EQ(two.hop_us, 0) << "requests hide each other's";
  EXPECT_NEAR(two.mean_done, (2000 + 5 + 2 * (10 + 11 + 12) + 5 * 2 + 4000) / 2.0 / 4000, 1e-9);
}

/// tp 2 is faster alone; from 2 requests on pp 2 is.
std::vector<Result> crossing() {
  std::vector<Result> rows;
  for (const int requests : {1, 2, 4, 8}) {
    rows.push_back(row(InferenceStep::decode, 1, 2, requests, 1000.0 * requests));
    rows.push_back(row(InferenceStep::decode, 2, 1, requests, 800.0 * std::max(2, requests)));
  }
  rows.push_back(row(InferenceStep::decode, 1, 1, 1, 1));
  rows.push_back(row(InferenceStep::decode, 2, 2, 1, 1));
  rows.push_back(row(InferenceStep::decode, 2, 1, 16, 1));
  return rows;
}

TEST(TpAgainstPp, TellsFromHowManyRequestsOnTheOtherWins) {
  const auto comparisons = compare_tp_with_pp(crossing());
  ASSERT_EQ(comparisons.size(), 1U);
  ASSERT_EQ(comparisons.front().points.size(), 4U) << "of 16 requests there is one only";
  EXPECT_EQ(comparisons.front().ranks, 2);
  EXPECT_EQ(conclusion(comparisons.front()),
            "tp 2 is 1.60x as fast per token at 1 request; pp 2 gives 1.25x the tokens/s from 2 "
            "requests on, 1.25x at 8 (1, 2, 4 and 8 were tried)");
}

TEST(TpAgainstPp, NamesTheNumbersThatWereTried) {
  std::vector<Result> rows = crossing();
  std::erase_if(rows, [](const Result& result) {
    const int requests = result.config.layer.inference->requests;
    return requests == 2 || requests == 4;
  });
  EXPECT_THAT(conclusion(compare_tp_with_pp(rows).front()),
              testing::EndsWith("from 8 requests on (1 and 8 were tried)"));
}

TEST(TpAgainstPp, LeavesOutWhatDidNotRunAndTakesTheFastestSplit) {
  std::vector<Result> rows = crossing();
  for (Result& result : rows)
    if (result.config.layer.inference->requests > 1) result.status = Status::failed;
  rows.push_back(row(InferenceStep::decode, 2, 1, 1, 500));
  rows.back().config.balance = "4+2";
  EXPECT_EQ(conclusion(compare_tp_with_pp(rows).front()),
            "pp 2 is 2.00x as fast per token at 1 request; pp 2 gives 2.00x the tokens/s at 1 "
            "request");
  rows.resize(1);
  EXPECT_TRUE(compare_tp_with_pp(rows).empty());
}

TEST(InferenceTable, ShowsRowsAndTheComparison) {
  std::ostringstream out;
  InferenceTable table{out, false};
  for (const Result& result : crossing()) table.add({result, {}});
  Result skipped = row(InferenceStep::prefill, 3, 1, 2, 0);
  skipped.status = Status::skipped;
  skipped.reason = "does not fit";
  table.add({skipped, {}});
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("decode     1  2    1 "), HasSubstr("skipped: does not fit"),
                    Not(HasSubstr("tp against pp"))));
  table.finish(true);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("tp against pp"), HasSubstr("from 2 requests on"),
                               HasSubstr("not batched together: sequences that are, are those of "
                                         "--batch")));
}

TEST(InferenceVerdict, AFewRequestsLeaveStagesIdle) {
  Result result = row(InferenceStep::decode, 3, 1, 2, 100);
  result.inference = InferenceTimes{.on_stage = 0.6, .in_collectives = 0.1};
  const Verdict verdict = judge(result, {}, {});
  EXPECT_EQ(verdict.name, "bubble_bound");
  EXPECT_THAT(verdict.reason, AllOf(HasSubstr("40.0 % of the window"),
                                    HasSubstr("2 requests for 3 stages; try --microbatches 4")));
  result.split.window_us = 100;
  for (const double comp_us : {12., 12., 13.5})
    result.splits.push_back({.window_us = 100, .comp_us = comp_us});
  EXPECT_EQ(judge(result, {}, {}).name, "bubble_bound") << "uneven by 1 % of the window";
  result.inference->on_stage = 0.9;
  result.time.samples = 10;
  const Verdict uneven = judge(result, {}, {});
  EXPECT_EQ(uneven.name, "imbalanced");
  EXPECT_THAT(uneven.reason, AllOf(HasSubstr("rank 2 computes 1.12x"),
                                   HasSubstr("; try --split with fewer blocks for it")));
}

/// tp 1 x pp 3 on a machine of round numbers, and folded ranks give the same bytes as formulas.
TEST(InferencePredicted, RowsAreComplete) {
  for (const InferenceStep step : {InferenceStep::prefill, InferenceStep::decode})
    for (const auto& [pp, tp] : {std::pair{3, 1}, {1, 2}, {2, 2}, {1, 1}})
      for (const int requests : {1, 3}) {
        Case config = row(step, pp, tp, requests, 0).config;
        const Outcome made = predict_row(config, test::round_machine(8), {});
        const std::string where = describe(config);
        ASSERT_EQ(made.result.status, Status::ok) << where << ": " << made.result.reason;
        EXPECT_EQ(made.result.bytes_observed, made.result.bytes_analytic) << where;
        EXPECT_GT(tokens_per_s(made.result), 0) << where;
        ASSERT_TRUE(made.result.inference.has_value()) << where;
        EXPECT_EQ(made.result.inference->hop_us > 0, requests == 1 && pp > 1) << where;
        EXPECT_EQ(made.result.inference->mean_done<1, requests> 1) << where;
        EXPECT_FALSE(made.result.pipeline.has_value()) << where;
      }
}

}  // namespace
}  // namespace shardmark::bench::pp
