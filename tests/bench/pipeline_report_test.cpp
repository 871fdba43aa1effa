#include "bench/pipeline/gain.hpp"
#include "bench/pipeline/report.hpp"
#include "layers/pipeline/generate.hpp"
#include "tests/bench/columns.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <sstream>

namespace shardmark::bench::pp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// 1F1B with 4 micro-batches over three ranks: a window of 10 ms, rank r waits r ms.
Result three_ranks() {
  Result result;
  LayerConfig& layer = result.config.layer;
  layer.parallel.pp.size = 3;
  layer.pipeline.micro = 4;
  layer.pipeline.schedule = std::make_shared<const pipeline::Schedule>(
      generate(pipeline::ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4}));
  result.time = {.p50 = 9000, .samples = 10};
  PipelineTimes times;
  for (int rank = 0; rank < 3; ++rank) {
    times.ranks.push_back({.window_us = 10000,
                           .forward_us = 2500,
                           .backward_us = 5000,
                           .wait_us = 1000.0 * rank,
                           .bubble_us = 2500});
    result.work.push_back({.activation_bytes = 1e6 * (3 - rank), .activation_claim_bytes = 9e5});
    times.peak_in_flight.push_back(3 - rank);
  }
  times.iterations = 15;
  times.stages = {{625, 1250}, {625, 1250}, {600, 1200}};
  times.measured = {times.ranks[1], 1.0 / 3, 0.25};
  times.measured.mean.drain_us = 500;
  times.replayed = {{.window_us = 9500}, 0.3, 0.23};
  times.replay_error_pct = -5;
  result.pipeline = times;
  return result;
}

std::string cell(const std::string& name, const Result& result) {
  return cell_of(Tool::pp, name, result);
}

TEST(PipelineReport, ComparesTheBubbleWithTheory) {
  std::ostringstream out;
  print_times(out, three_ranks(), false);
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("bubble: 25.0 % of 10.000 ms (33.3 % of ideal): wait 10.0, blocked "
                              "0.0, start 0.0, drain 5.0, unexplained 0.0 %\n"),
                    HasSubstr("theory: 23.0 % (30.0 % of ideal), step 9.500 ms (-5.0 %); 15 "
                              "iterations\n")));
}

TEST(PipelineReport, APredictionIsItsOwnReplayAndHasNoTheory) {
  Result result = three_ranks();
  result.time.samples = 0;
  std::ostringstream out;
  print_times(out, result, false);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("bubble: 25.0 %"), Not(HasSubstr("    theory:"))));
}

TEST(PipelineReport, NoNumberIsAZeroWithAMinus) {
  Result result = three_ranks();
  result.pipeline->measured.of_total = -1e-17;
  result.pipeline->measured.mean.unexplained_us = -0.01;
  result.pipeline->replay_error_pct = -0.01;
  result.pipeline->ranks[2].unexplained_us = -0.01;
  std::ostringstream out;
  print_times(out, result, true);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("bubble: 0.0 %"), HasSubstr("unexplained 0.0 %"),
                               Not(HasSubstr("-0.0"))));
  result.pipeline->measured.mean.unexplained_us = -0.0;
  EXPECT_EQ(cell("pp_unexplained_us", result), "0");
}

TEST(PipelineReport, VerboseHasALinePerRankWithWhatTheScheduleHolds) {
  std::ostringstream out;
  Result result = three_ranks();
  result.pipeline->ranks[1].blocked_us = 500;
  result.pipeline->ranks[1].start_us = 125;
  result.pipeline->ranks[1].drain_us = 250;
  print_times(out, result, true);
  const std::string text = out.str();
  for (const char* line :
       {"         0     2.500     5.000", "         3     3     3.00 MB 900.00 kB",
        "         2     2     2.00 MB 900.00 kB", "         1     1     1.00 MB 900.00 kB"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("in flight:")));
  EXPECT_THAT(text, HasSubstr("   wait   blocked     start     drain    unexpl bubble%"));
  EXPECT_THAT(text, HasSubstr("     0.500     0.125     0.250     0.000    25.0"));
}

TEST(PipelineReport, SaysWhereRanksHeldSomethingElseThanTheScheduleClaims) {
  Result result = three_ranks();
  result.pipeline->peak_in_flight = {3, 1, 2};
  std::ostringstream out;
  print_times(out, result, false);
  EXPECT_THAT(out.str(), HasSubstr("    in flight: 3+1+2 at most, by the schedule 3+2+1\n"));
  const auto places = in_flight(*result.pipeline, result.config.layer);
  EXPECT_EQ(in_flight_problem(places),
            "rank 2 of the pipeline held 2 micro-batches at once, its schedule says 1");
  EXPECT_EQ(in_flight_problem(std::span{places}.first(2)), "");
}

/// Two copies of the pipeline over tp 2: rank 5 is at the end of the first, 8 in the middle of the
/// second.
TEST(PipelineReport, TheMostOfAllCopiesCounts) {
  Result result = three_ranks();
  Parallel& parallel = result.config.layer.parallel;
  parallel.tp.size = 2;
  parallel.dp.size = 2;
  result.pipeline->peak_in_flight = {3, 3, 1, 1, 1, 1, 2, 2, 1, 2, 1, 1};
  EXPECT_EQ(pipeline_place(parallel, 5), 2U);
  EXPECT_EQ(pipeline_place(parallel, 8), 1U);
  EXPECT_EQ(pipeline_place(parallel, 12), 0U) << "a replica";
  EXPECT_EQ(cell("peak_inflight", result), "3+2+1");
  EXPECT_EQ(cell("peak_inflight_measured", result), "3+2+1");
}

TEST(PipelineReport, ARowWithoutAPipelineHasNone) {
  std::ostringstream out;
  print_times(out, Result{}, true);
  EXPECT_EQ(out.str(), "");
}

Outcome balanced(const std::string& how, std::vector<std::int64_t> blocks, double slowest_us,
                 double step_us) {
  Outcome row;
  row.result = three_ranks();
  row.result.config.balance = how;
  row.result.config.layer.pipeline.schedule_name = "1f1b";
  row.result.config.layer.pipeline.blocks = std::move(blocks);
  row.result.pipeline->ranks[1].backward_us = slowest_us - 2500;
  row.result.time.p50 = step_us;
  return row;
}

TEST(PipelineGain, ComparesMeasuredRowsThatDifferInTheirBalanceOnly) {
  const Outcome by_count = balanced("count", {3, 3, 3}, 10'000, 16'000);
  const Outcome by_cost = balanced("measured", {4, 3, 2}, 8000, 14'000);
  Outcome other = by_cost;
  other.result.config.layer.pipeline.micro = 8;  // has no row by count
  Outcome larger = balanced("count", {3, 3, 3}, 90'000, 99'000);
  larger.result.config.vocab_unpadded = 32'768;
  const std::vector<Result> results{larger.result, by_count.result, other.result, by_cost.result};
  const auto gains = measured_gains(results);
  ASSERT_EQ(gains.size(), 1U);
  EXPECT_DOUBLE_EQ(gains[0].gain_pct(), 20);
  EXPECT_DOUBLE_EQ(gains[0].step_gain_pct(), 12.5);
  std::ostringstream out;
  GainText text{out};
  text.add(by_count);
  text.add(by_cost);
  text.finish(true);
  EXPECT_THAT(out.str(),
              HasSubstr("4+3+2 blocks instead of 3+3+3: the slowest rank computes 8.00 instead of "
                        "10.00 ms (-20.0 %), a step takes 14.00 instead of 16.00 ms (-12.5 %)\n"));
}

TEST(PipelineGain, TheSameSplitGainsNothing) {
  std::ostringstream out;
  GainText text{out};
  text.add(balanced("count", {3, 3, 3}, 10'000, 16'000));
  text.add(balanced("measured", {3, 3, 3}, 9900, 15'900));
  text.finish(true);
  EXPECT_EQ(out.str(), "");
}

TEST(PipelineColumns, SayWhatTheBubbleIsMadeOf) {
  const Result result = three_ranks();
  EXPECT_EQ(cell("bubble_us", result), "2500");
  EXPECT_EQ(cell("bubble_of_total", result), "0.25");
  EXPECT_EQ(cell("bubble_theory_of_total", result), "0.23");
  EXPECT_EQ(cell("bubble_theory_of_ideal", result), "0.3");
  EXPECT_EQ(cell("step_replayed_us", result), "9500");
  EXPECT_EQ(cell("step_replayed_error_pct", result), "-5");
  EXPECT_EQ(cell("pp_wait_us", result), "1000");
  EXPECT_EQ(cell("pp_drain_us", result), "500");
  EXPECT_EQ(cell("stage_backward_us", result), "1250+1250+1200");
  EXPECT_EQ(cell("peak_inflight", result), "3+2+1");
  EXPECT_EQ(cell("peak_inflight_measured", result), "3+2+1");
  EXPECT_EQ(cell("rank_activation_bytes", result), "3000000+2000000+1000000");
  EXPECT_EQ(cell("rank_activation_claim_bytes", result), "900000+900000+900000");
  Result unsplit = result;
  unsplit.pipeline.reset();
  EXPECT_EQ(cell("bubble_us", unsplit), "") << "not 0: it was not measured";
}

}  // namespace
}  // namespace shardmark::bench::pp
