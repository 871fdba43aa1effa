#include "bench/pipeline/table.hpp"
#include "tests/bench/columns.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::pp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Outcome row() {
  Outcome outcome;
  Result& result = outcome.result;
  result.config.p2p = "split";
  result.config.balance = "count";
  LayerConfig& layer = result.config.layer;
  layer.block = BlockKind::model;
  layer.parallel.pp.size = 3;
  layer.parallel.dp.size = 2;
  layer.pipeline = {.schedule_name = "zb-v",
                    .chunks = 2,
                    .micro = 6,
                    .schedule = nullptr,
                    .blocks = {2, 1, 1, 1, 1, 2}};
  layer.shape.layers = 8;
  result.time = {.p50 = 1000, .samples = 10};
  result.verdict = "compute_bound";
  return outcome;
}

std::string cell(const std::string& name, const Result& result) {
  return cell_of(Tool::pp, name, result);
}

TEST(PipelineColumns, AreTheGoldenOnesAndInTheReadme) {
  expect_known_columns(Tool::pp, SHARDMARK_SOURCE_DIR, "results_columns_pp.txt");
}

TEST(PipelineColumns, TellRowsApart) {
  const Result result = row().result;
  EXPECT_EQ(cell("schedule", result), "zb-v");
  EXPECT_EQ(cell("pp", result), "3");
  EXPECT_EQ(cell("vpp", result), "2");
  EXPECT_EQ(cell("microbatches", result), "6");
  EXPECT_EQ(cell("dp", result), "2");
  EXPECT_EQ(cell("p2p", result), "split");
  EXPECT_EQ(cell("balance", result), "count");
  EXPECT_EQ(cell("split", result), "2+1+1+1+1+2");
  EXPECT_EQ(cell("recompute", result), "none");
  EXPECT_EQ(cell("tied_embeddings", result), "false");
  EXPECT_EQ(cell("layers", result), "8");
  EXPECT_EQ(cell("group_size", result), "6");
  EXPECT_EQ(cell("cp", result), "no such column");
  for (const Tool tool : {Tool::tp, Tool::cp})
    for (const Column& column : result_columns(tool)) EXPECT_NE(column.name, "schedule");
}

TEST(PipelineColumns, WhatGoesByCollectivesIsEmptyOfSeveralStages) {
  Result result = row().result;
  result.transfer_us = 5;
  result.wait_us = 7;
  result.comm_alone_us = 10;
  result.comm_together_us = 15;
  for (const char* name : {"transfer_us", "wait_us", "comm_tax_pct"})
    EXPECT_EQ(cell(name, result), "") << name;
  result.config.layer.parallel.pp.size = 1;  // dp 2
  EXPECT_EQ(cell("transfer_us", result), "5");
  EXPECT_EQ(cell("wait_us", result), "7");
  EXPECT_EQ(cell("comm_tax_pct", result), "50");
}

TEST(PipelineColumns, AMeasuredSplitIsNoKeyAndAGivenOneIs) {
  const RunIdentity run{"id", "cpu", "threads", Tool::pp};
  const Outcome first = row();
  Outcome second = row();
  second.result.config.layer.pipeline.blocks = {1, 1, 1, 1, 2, 2};
  EXPECT_EQ(row_key({first.result, run}), row_key({second.result, run}));
  second.result.config.balance = "1+1+1+1+2+2";
  EXPECT_NE(row_key({first.result, run}), row_key({second.result, run}));
}

TEST(PipelineColumns, RecomputationAndTiesAreKeys) {
  const RunIdentity run{"id", "cpu", "threads", Tool::pp};
  const std::string key = row_key({row().result, run});
  Result changed = row().result;
  changed.config.layer.recompute = Recompute::full;
  EXPECT_NE(row_key({changed, run}), key);
  changed = row().result;
  changed.config.layer.tied_embeddings = true;
  EXPECT_NE(row_key({changed, run}), key);
}

TEST(PipelineTable, RowsThatColumnsShowAsEqualAreToldApart) {
  std::ostringstream out;
  Table table{out, false};
  Outcome merged = row();
  merged.result.config.p2p = "merged";
  merged.result.config.balance = "measured";
  LayerConfig& layer = merged.result.config.layer;
  layer.recompute = Recompute::full;
  layer.tied_embeddings = layer.parallel.sequence_parallel = true;
  table.add(merged);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("zb-v "),
                               HasSubstr("compute_bound [merged, measured 2+1+1+1+1+2, recompute "
                                         "full, tied, sp]")));
}

TEST(PipelineTable, SkippedRowsSayWhy) {
  std::ostringstream out;
  Table table{out, false};
  Outcome skipped = row();
  skipped.result.time = {};
  skipped.result.status = Status::skipped;
  skipped.result.reason = "does not fit";
  table.add(skipped);
  EXPECT_THAT(out.str(), HasSubstr("skipped: does not fit"));
}

}  // namespace
}  // namespace shardmark::bench::pp
