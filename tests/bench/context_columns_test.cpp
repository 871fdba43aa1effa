#include "bench/context/options.hpp"
#include "bench/context/table.hpp"
#include "tests/bench/columns.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::context {
namespace {

using testing::HasSubstr;

Outcome row(int cp, double p50_us) {
  Outcome outcome;
  Result& result = outcome.result;
  result.config.layer.block = BlockKind::attention_core;
  result.config.layer.parallel.context.cp.size = cp;
  result.time = {.p50 = p50_us, .samples = 10};
  result.verdict = "compute_bound";
  for (int rank = 0; rank < cp; ++rank) result.work.push_back({.flops_useful = 1.0 + 2.0 * rank});
  return outcome;
}

std::string cell(const std::string& name, const Result& result) {
  return cell_of(Tool::cp, name, result);
}

TEST(ContextColumns, AreTheGoldenOnesAndInTheReadme) {
  expect_known_columns(Tool::cp, SHARDMARK_SOURCE_DIR, "results_columns_cp.txt");
}

TEST(ContextColumns, EachProgramHasItsOwn) {
  const Outcome outcome = row(2, 1000);
  EXPECT_EQ(cell("cp", outcome.result), "2");
  EXPECT_EQ(cell("cp_kind", outcome.result), "ring");
  EXPECT_EQ(cell("cp_kind", row(1, 1000).result), "none");
  EXPECT_EQ(cell("vocab", outcome.result), "no such column");
  EXPECT_EQ(cell("gather_output", outcome.result), "no such column");
  for (const Column& column : result_columns(Tool::tp)) EXPECT_NE(column.name, "cp");
}

TEST(ContextColumns, BalanceIsBusiestOverMean) {
  const Result result = row(2, 1000).result;  // 1 and 3
  EXPECT_EQ(cell("flops_useful_max", result), "3");
  EXPECT_EQ(cell("flops_useful_mean", result), "2");
  EXPECT_EQ(cell("balance", result), "1.5");
  EXPECT_EQ(cell("speedup_ceiling", result), "1.33333");
  EXPECT_EQ(cell("group_size", result), "2");
}

TEST(ContextColumns, PackedSequencesAreOneCell) {
  Result result = row(2, 1000).result;
  EXPECT_EQ(cell("seqlens", result), "");
  result.config.layer.shape.seqlens = {3072, 1024, 4096};
  result.config.layer.shape.window = 512;
  EXPECT_EQ(cell("seqlens", result), "3072+1024+4096");
  EXPECT_EQ(cell("window", result), "512");
}

TEST(ContextTable, RowsThatColumnsShowAsEqualAreToldApart) {
  std::ostringstream out;
  Table table{out, false};
  table.add(row(3, 1000));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("[")));
  Outcome other = row(3, 1000);
  LayerConfig& layer = other.result.config.layer;
  layer.shape.causal = false;
  layer.shape.window = 100;
  layer.shape.seqlens = {512, 512};
  layer.parallel.sequence_parallel = true;
  table.add(other);
  EXPECT_THAT(out.str(), HasSubstr("compute_bound [sp, window 100, full, packed 512+512]"));
}

TEST(ContextTable, ComparesWithCp1OfTheSameShape) {
  std::ostringstream out;
  Table table{out, false};
  table.add(row(1, 2000));
  EXPECT_THAT(out.str(), HasSubstr("1.00x"));
  out.str("");
  table.add(row(2, 1250));
  EXPECT_THAT(out.str(), testing::AllOf(HasSubstr("1.33x"), HasSubstr("1.60x")));
  Outcome other = row(2, 1000);
  other.result.config.layer.shape.window = 100;
  out.str("");
  table.add(other);
  EXPECT_THAT(out.str(), HasSubstr("       - "));
}

TEST(ContextTable, SkippedRowsSayWhy) {
  std::ostringstream out;
  Table table{out, false};
  Outcome skipped = row(2, 0);
  skipped.result.status = Status::skipped;
  skipped.result.reason = "does not fit";
  table.add(skipped);
  EXPECT_THAT(out.str(), HasSubstr("skipped: does not fit"));
}

}  // namespace
}  // namespace shardmark::bench::context
