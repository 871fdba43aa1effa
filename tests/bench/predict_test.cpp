#include "bench/harness/predict.hpp"

#include "bench/harness/columns.hpp"
#include "bench/harness/run.hpp"
#include "sim/predict.hpp"
#include "tests/sim/machines.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <set>

namespace shardmark::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Only matmuls take time, each of those of `mlp` 6 us on one rank; a link delays by `latency_us`.
Machine matmul_machine(double latency_us) {
  Machine machine = test::round_machine(4);
  machine.peaks_tflops["f32"].value = 2. * 32 * 64 * 768 / 6e6;
  machine.launch_overhead_us.value = 0;
  machine.memory_GBps.value = 1e15;
  machine.inside.link.latency_us.value = latency_us;
  machine.inside.link.bandwidth_GBps.value = 1e15;
  return machine;
}

/// 32 tokens, 64 wide, 768 inside: two matmuls forward and four backward.
Case mlp(int tp) {
  Case config;
  config.layer.block = BlockKind::mlp;
  config.layer.shape.hidden = 64;
  config.layer.shape.ffn = 768;
  config.layer.shape.seq = 32;
  config.layer.parallel.tp.size = tp;
  return config;
}

TEST(PredictRow, AnMlpTakesItsMatmulsExactly) {
  for (const int tp : {1, 2, 3}) {
    const Outcome row = predict_row(mlp(tp), matmul_machine(0), {});
    const Result& result = row.result;
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    EXPECT_DOUBLE_EQ(result.time.p50, 36. / tp) << "tp " << tp;
    EXPECT_DOUBLE_EQ(result.split.comp_us, 36. / tp) << "tp " << tp;
    EXPECT_EQ(result.split.exposed_comm_us, 0) << "tp " << tp;
    EXPECT_EQ(result.split.idle_us, 0) << "tp " << tp;
    EXPECT_NEAR(result.mfu_causal_pct(), 100, 1e-9) << "tp " << tp;
    EXPECT_EQ(result.peak.source, "machine:round");
    EXPECT_EQ(result.bytes_observed, result.bytes_analytic);
    EXPECT_EQ(result.splits.size(), static_cast<std::size_t>(tp));
    EXPECT_EQ(result.work.size(), static_cast<std::size_t>(tp));
  }
}

/// A ring's all-reduce takes 2(t-1) steps; one is forward, one backward.
TEST(PredictRow, LatenciesOfTheCollectivesAreExposed) {
  for (const int tp : {2, 3, 4}) {
    const Result result = predict_row(mlp(tp), matmul_machine(5), {}).result;
    const double comm_us = 2 * 2 * (tp - 1) * 5;
    EXPECT_DOUBLE_EQ(result.time.p50, 36. / tp + comm_us) << "tp " << tp;
    for (int rank = 0; rank < tp; ++rank) {
      const TimeSplit& split = result.splits[static_cast<std::size_t>(rank)];
      EXPECT_DOUBLE_EQ(split.exposed_comm_us, comm_us) << "rank " << rank << " of " << tp;
      EXPECT_NEAR(split.residual_us, 0, 1e-9) << "rank " << rank << " of " << tp;
    }
    EXPECT_DOUBLE_EQ(result.transfer_us, comm_us) << "tp " << tp;
    EXPECT_EQ(result.wait_us, 0) << "tp " << tp;
    EXPECT_DOUBLE_EQ(result.compute_only_us, 36. / tp) << "tp " << tp;
    EXPECT_DOUBLE_EQ(result.communication_only_us, comm_us) << "tp " << tp;
    EXPECT_NEAR(result.comp_tax_pct(), 0, 1e-9) << "tp " << tp;
    EXPECT_EQ(result.verdict, "communication_bound") << "tp " << tp;
  }
}

/// Weights, gradients and activations of two matrices against what the machine has.
TEST(PredictRow, SaysWhenTheMachineHasTooLittleMemory) {
  Machine machine = matmul_machine(0);
  for (const int tp : {1, 3}) {
    machine.memory_GB.reset();
    const Result unknown = predict_row(mlp(tp), machine, {}).result;
    ASSERT_GT(unknown.mem_peak_bytes, 0) << "tp " << tp;
    EXPECT_NE(unknown.verdict, "does_not_fit") << "tp " << tp;
    const double needed_GB = static_cast<double>(unknown.mem_peak_bytes) / 1e9;
    machine.memory_GB = Fact{1.01 * needed_GB, "made up"};
    EXPECT_EQ(predict_row(mlp(tp), machine, {}).result.verdict, unknown.verdict) << "tp " << tp;
    machine.memory_GB = Fact{0.99 * needed_GB, "made up"};
    const Result crowded = predict_row(mlp(tp), machine, {}).result;
    EXPECT_EQ(crowded.status, Status::ok) << "tp " << tp;
    EXPECT_EQ(crowded.verdict, "does_not_fit") << "tp " << tp;
    EXPECT_THAT(crowded.verdict_reason, HasSubstr("if it fitted: " + unknown.verdict))
        << "tp " << tp;
    EXPECT_EQ(crowded.time.p50, unknown.time.p50) << "tp " << tp;
  }
}

/// Blocks on meshes that fold and on some that do not.
std::vector<Case> small_cases() {
  std::vector<Case> cases;
  for (const auto& [dp, cp, tp] :
       {std::array{1, 1, 4}, {1, 1, 6}, {2, 1, 3}, {1, 3, 1}, {2, 2, 2}, {1, 4, 2}, {3, 2, 3}})
    for (const bool sequence_parallel : {false, true})
      for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag}) {
        Case config;
        LayerConfig& layer = config.layer;
        layer.shape = {.hidden = 768, .heads = 12, .kv_heads = 12, .head_dim = 64, .ffn = 3072};
        layer.shape.seq = 144;
        layer.parallel.dp.size = dp;
        layer.parallel.tp.size = tp;
        layer.parallel.context.cp.size = cp;
        layer.parallel.context.order = order;
        layer.parallel.sequence_parallel = sequence_parallel;
        cases.push_back(config);
      }
  return cases;
}

TEST(PredictRow, FoldedRanksHaveTheTimesOfUnfoldedOnes) {
  bool any_folded = false;
  for (const int ranks_per_node : {1, 3, 4, 64}) {
    const Machine machine = test::round_machine(ranks_per_node);
    for (const Case& config : small_cases()) {
      const Parallel& parallel = config.layer.parallel;
      const std::string where =
          message("dp ", parallel.dp.size, " cp ", parallel.context.cp.size, " tp ",
                  parallel.tp.size, " sp ", parallel.sequence_parallel, " order ",
                  name_of(parallel.context.order), ", nodes of ", ranks_per_node);
      const Outcome folded = predict_row(config, machine, {});
      ASSERT_EQ(folded.result.status, Status::ok) << where << ": " << folded.result.reason;
      any_folded = any_folded || folded.traces.size() < folded.result.splits.size();
      std::vector<Recording> recordings;
      std::vector<std::vector<OpRecord>> lists;
      LayerConfig layer = config.layer;
      for (int rank = 0; rank < parallel.num_ranks(); ++rank) {
        layer.parallel = parallel.at(0, rank);
        recordings.push_back(record_program(layer, config.phase, 1));
        lists.push_back(recordings.back().ops);
      }
      const Prediction unfolded = predict(lists, machine);
      EXPECT_EQ(folded.result.time.p50, unfolded.window_us()) << where;
      for (int rank = 0; rank < parallel.num_ranks(); ++rank) {
        const TimeSplit& split = folded.result.splits[static_cast<std::size_t>(rank)];
        const RankTime& time = unfolded.time_of(rank);
        EXPECT_NEAR(split.comp_us * 1e3, static_cast<double>(time.comp_ns), 1e-6)
            << "rank " << rank << ", " << where;
        EXPECT_NEAR(split.exposed_comm_us * 1e3, static_cast<double>(time.exposed_comm_ns), 1e-6)
            << "rank " << rank << ", " << where;
        EXPECT_NEAR(split.idle_us * 1e3, static_cast<double>(time.idle_ns), 1e-6)
            << "rank " << rank << ", " << where;
      }
    }
  }
  EXPECT_TRUE(any_folded);
}

TEST(PredictRow, FourThousandRanksTakeSeconds) {
  Case config;
  LayerConfig& layer = config.layer;
  layer.block = BlockKind::block;
  layer.shape = {.hidden = 12288, .heads = 96, .kv_heads = 96, .head_dim = 128, .ffn = 49152};
  layer.shape.seq = 65536;
  layer.dtype = DType::bf16;
  layer.parallel.dp.size = 32;
  layer.parallel.context.cp.size = 16;
  layer.parallel.tp.size = 8;
  const auto begin = std::chrono::steady_clock::now();
  const Outcome row = predict_row(config, load_machine("h100-sxm-8"), {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{5});
  EXPECT_EQ(row.result.status, Status::ok) << row.result.reason;
  EXPECT_EQ(row.result.splits.size(), 4096U);
  EXPECT_EQ(row.traces.size(), 16U);
}

TEST(PredictRow, WhatAMachineCannotRunIsSkipped) {
  Machine machine = test::round_machine(2);
  machine.has_between = false;
  const Result large = predict_row(mlp(3), machine, {}).result;
  EXPECT_EQ(large.status, Status::skipped);
  EXPECT_THAT(large.reason, HasSubstr("round is one node of 2 ranks, and this takes 3"));
  Case config = mlp(2);
  config.layer.dtype = DType::bf16;
  const Result half = predict_row(config, machine, {}).result;
  EXPECT_EQ(half.status, Status::skipped);
  EXPECT_THAT(half.reason, HasSubstr("no peak for bf16; it has one for f32"));
  EXPECT_EQ(half.time.p50, 0);
}

std::set<std::string> empty_cells(const Outcome& row, const RunIdentity& run) {
  std::set<std::string> names;
  for (const Column& column : result_columns())
    if (column.cell({row.result, run}).empty()) names.insert(column.name);
  return names;
}

TEST(PredictRow, HasNoNumbersThatOnlySamplesGive) {
  Outcome row = predict_row(mlp(3), matmul_machine(5), {});
  EXPECT_THAT(empty_cells(row, {"id", "record", "", Tool::tp, "round"}),
              testing::UnorderedElementsAre(
                  "transport", "device", "model", "time_us_p10", "time_us_p95", "time_us_p99",
                  "time_us_min", "time_us_max", "time_us_mean", "cv_pct", "samples", "warmup",
                  "inner_iterations", "check", "check_mode", "check_exact", "max_abs_err",
                  "rel_norm_err", "tol", "throttled_by", "profiler_overhead_pct", "reason"));
  row.result.time.samples = 3;
  EXPECT_THAT(
      empty_cells(row, {"id", "cpu", "threads"}),
      testing::UnorderedElementsAre("device", "model", "throttled_by", "machine", "reason"));
}

std::string problem_of(const std::vector<std::string>& arguments) {
  return test::refusal([&] { return parse_options(arguments); });
}

TEST(PredictOptions, MachinesAreKnownByNameOrPath) {
  EXPECT_EQ(parse_options({"--predict", "h100-sxm-8"}).machine->name, "h100-sxm-8");
  EXPECT_THAT(problem_of({"--predict", "h1000"}),
              HasSubstr("the machines are a100-sxm-8, h100-sxm-8, h200-sxm-8"));
  const std::string listed = parse_options({"--list-machines"}).print;
  for (const std::string& name : machine_names()) EXPECT_THAT(listed, HasSubstr(name + ": "));
}

TEST(PredictOptions, WhatNeedsRanksIsRefused) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--dry-run"},
                                             {"--dump", "d"},
                                             {"--ranks", "2"},
                                             {"--transport", "threads"},
                                             {"--fill", "replicate"},
                                             {"--threads-per-rank", "4"},
                                             {"--check-nan"}}) {
    std::vector<std::string> arguments{"--predict", "h100-sxm-8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_THAT(problem_of(arguments), HasSubstr("--predict runs nothing that " + more.front()));
  }
  EXPECT_THAT(problem_of({"--predict", "h100-sxm-8", "--check", "full"}),
              HasSubstr("--predict runs nothing that --check full"));
  EXPECT_THAT(problem_of({"--predict", "h100-sxm-8", "--algorithm", "tp=ring"}),
              HasSubstr("leave out --algorithm"));
}

TEST(PredictOptions, DegreesAreThoseOfANodeOrAnyThatAreGiven) {
  const auto degrees = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--predict", "h100-sxm-8", "--heads", "32"});
    const Sweep sweep = tensor_parallel_bench(parse_options(arguments)).expand(8);
    std::vector<int> tp;
    for (const Case& config : sweep.cases) {
      EXPECT_THAT(config.skip_reason, IsEmpty());
      tp.push_back(config.layer.parallel.tp.size);
    }
    return tp;
  };
  EXPECT_THAT(degrees({}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(degrees({"--tp", "8,16"}), ElementsAre(8, 16));
}

TEST(PredictOptions, CalibrationNamesWhatItCannotRead) {
  EXPECT_THAT(problem_of({"--calibrate", "/nowhere/run"}),
              HasSubstr("--calibrate /nowhere/run: cannot read"));
}

}  // namespace
}  // namespace shardmark::bench
