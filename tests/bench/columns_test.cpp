#include "bench/harness/columns.hpp"

#include "bench/harness/csv.hpp"
#include "bench/harness/csv_sinks.hpp"
#include "core/error.hpp"
#include "tests/bench/columns.hpp"

#include "scratch.hpp"
#include <gmock/gmock.h>

#include <fstream>
#include <set>

namespace shardmark::bench {
namespace {

Result measured_row(int tp) {
  Result result;
  result.config.layer.parallel.tp.size = tp;
  result.world_size = 2;
  result.time.p50 = 1000;
  result.time.samples = 5;
  result.flops_model_causal = 2e9;
  result.peak = {4.0, 5.0, "measured_gemm"};
  result.check_mode = CheckMode::reduced;
  return result;
}

std::string cell(const std::string& name, const Result& result) {
  return cell_of(Tool::tp, name, result);
}

TEST(Columns, AreTheGoldenOnesAndInTheReadme) {
  expect_known_columns(Tool::tp, SHARDMARK_SOURCE_DIR, "results_columns.txt");
}

TEST(Columns, CellsFollowTheConventions) {
  const Result serial = measured_row(1);
  EXPECT_EQ(cell("sp", serial), "false");
  EXPECT_EQ(cell("phase", serial), "step");
  EXPECT_EQ(cell("check", serial), "pass");
  EXPECT_EQ(cell("status", serial), "ok");
  EXPECT_EQ(cell("time_us_p50", serial), "1000");
  EXPECT_EQ(cell("tflops_per_device", serial), "2");
  EXPECT_EQ(cell("mfu_causal_pct", serial), "50");
  EXPECT_EQ(cell("overlap_pct", serial), "") << "tp 1 communicates nothing";
  EXPECT_EQ(cell("overlap_pct", measured_row(2)), "0");
}

TEST(Columns, ASkippedRowHasAReasonAndNoTimes) {
  Result result = measured_row(2);
  result.status = Status::skipped;
  result.reason = "too large";
  result.time = {};
  EXPECT_EQ(cell("status", result), "skipped");
  EXPECT_EQ(cell("check", result), "skipped");
  EXPECT_EQ(cell("reason", result), "too large");
  EXPECT_EQ(cell("time_us_p50", result), "");
  EXPECT_EQ(cell("hidden", result), "1024");
}

TEST(Resume, RowsInTheFileAreFinished) {
  const std::string folder = scratch_folder();
  const RunIdentity run{"first", "cpu", "threads"};
  const Result result = measured_row(2);
  ResultsCsv{folder, run, false}.add({result, {}});
  const std::set<std::string> finished = finished_rows(folder);
  EXPECT_EQ(finished.size(), 1U);
  EXPECT_TRUE(finished.contains(row_key({result, {"second", "cpu", "threads"}})));
  EXPECT_FALSE(finished.contains(row_key({measured_row(1), run})));
  EXPECT_FALSE(finished.contains(row_key({result, {"second", "cpu", "mpi"}})));
}

TEST(Columns, ARowWhoseCheckFailedKeepsItsNumbers) {
  Result result = measured_row(2);
  result.status = Status::failed;
  result.check.pass = false;
  result.check.rel_norm_err = 0.5;
  EXPECT_EQ(cell("check", result), "fail");
  EXPECT_EQ(cell("rel_norm_err", result), "0.5");
  EXPECT_EQ(cell("time_us_p50", result), "1000");
}

TEST(Resume, AFailedRowIsMeasuredAgain) {
  const std::string folder = scratch_folder();
  Result result = measured_row(2);
  result.status = Status::failed;
  ResultsCsv{folder, {"first", "cpu", "threads"}, false}.add({result, {}});
  EXPECT_THAT(finished_rows(folder), testing::IsEmpty());
}

TEST(Resume, AFolderWithoutRowsHasNothingFinished) {
  EXPECT_THAT(finished_rows(scratch_folder()), testing::IsEmpty());
}

TEST(Resume, AnotherSchemaIsRefused) {
  const std::string folder = scratch_folder();
  ResultsCsv{folder, {"first", "cpu", "threads"}, false}.add({measured_row(2), {}});
  std::string text = read_file(folder + "/results.csv");
  text.replace(text.find('\n') + 1, 1, "9");
  std::ofstream{folder + "/results.csv"} << text;
  EXPECT_THROW((void)finished_rows(folder), InputError);
  std::ofstream{folder + "/results.csv"} << "schema_version,time\n1,2\n";
  EXPECT_THROW((void)finished_rows(folder), InputError);
}

}  // namespace
}  // namespace shardmark::bench
