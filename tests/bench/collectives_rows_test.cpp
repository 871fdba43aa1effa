#include "bench/collectives/columns.hpp"
#include "bench/collectives/fit.hpp"
#include "bench/collectives/table.hpp"
#include "bench/collectives/tune.hpp"
#include "bench/collectives/waits.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Row row_of(std::int64_t size_bytes, double time_us, const std::string& algorithm = "native",
           bool in_place = false) {
  Row row;
  row.point.algorithm = algorithm;
  row.point.group_size = 2;
  row.point.size_bytes = size_bytes;
  row.point.count = size_bytes / 4;
  row.point.in_place = in_place;
  row.time.p50 = time_us;
  row.time.samples = 10;
  row.checked = true;
  return row;
}

TEST(CollectivesTable, IsLaidOutAsNcclTestsDoes) {
  std::ostringstream out;
  const Options options;
  Table table{out, options};
  const std::vector<int> groups{0};
  table.begin(Collective::all_reduce, {{0, "node-a", 6899}}, groups, "CPU");
  table.add(row_of(1 << 20, 203.2), nullptr);
  const Row in_place = row_of(8, 123.5, "native", true);
  table.add(row_of(8, 12646.4), &in_place);
  table.end();
  EXPECT_THAT(
      out.str(),
      HasSubstr("# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: "
                "1048576(bytes) warmup iters: 5 iters: 10 agg iters: 1 validation: 1 "
                "graph: 0\n#\n# Using devices\n#  Rank  0 Group  0 Pid   6899 on     node-a "
                "device  0 [0x00] CPU\n#\n"));
  EXPECT_THAT(out.str(),
              HasSubstr("\n#       size         count      type   redop    root     time  "
                        " algbw   busbw #wrong     time   algbw   busbw #wrong"));
  EXPECT_THAT(out.str(),
              HasSubstr("\n     1048576        262144     float     sum      -1    203.2  "
                        "  5.16    5.16      0      N/A     N/A     N/A    N/A  native"));
  EXPECT_THAT(out.str(),
              HasSubstr("\n           8             2     float     sum      -1    12646  "
                        "  0.00    0.00      0    123.5    0.00    0.00      0  native"));
  EXPECT_THAT(out.str(),
              HasSubstr("\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.72"));
}

TEST(CollectivesFit, FindsLatencyAndBandwidth) {
  std::vector<TimedSize> points;
  for (double size = 8; size < 1e9; size *= 4) points.push_back({size, 2 + size / 5e3});
  const std::optional<LineFit> fit = fit_line(points);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->alpha_us, 2, 1e-6);
  EXPECT_NEAR(fit->bandwidth_GBps, 5, 1e-6);
  EXPECT_LT(fit->worst_error_pct, 1e-6);
  EXPECT_FALSE(fit_line(std::span{points}.first(2)));
}

TEST(CollectivesFit, LeavesOutATermThatWouldBeNegative) {
  const std::vector<TimedSize> falling{{8, 10}, {1024, 9}, {4096, 8}};
  const std::optional<LineFit> fit = fit_line(falling);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->bandwidth_GBps, 0);
  EXPECT_GT(fit->alpha_us, 8);
}

TEST(CollectivesFit, VerdictsChangeWhereLatencyIsHalf) {
  std::vector<Row> rows;
  for (std::int64_t size = 1024; size <= 1 << 20; size *= 4)
    rows.push_back(row_of(size, 10 + static_cast<double>(size) / 5e3));
  rows.push_back(row_of(65536, 60));
  const std::vector<std::string> lines = conclude(rows);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("expected of native out of place")));
  EXPECT_EQ(rows.front().verdict, "latency_bound");
  EXPECT_EQ(rows[5].verdict, "bandwidth_bound");
  EXPECT_EQ(rows.back().verdict, "slower_than_expected");
  EXPECT_GT(rows.front().expected_us, 0);
}

TEST(CollectivesTune, ChoosesTheFastestBySize) {
  std::vector<Row> rows;
  for (const std::int64_t size : {1024, 4096, 16384}) {
    rows.push_back(row_of(size, 10, "native"));
    rows.push_back(row_of(size, size > 4096 ? 5 : 20, "ring"));
  }
  const ChoiceTable table = make_choices(rows);
  EXPECT_EQ(table.pick(Collective::all_reduce, 2, 8), "native");
  EXPECT_EQ(table.pick(Collective::all_reduce, 2, 4096), "native");
  EXPECT_EQ(table.pick(Collective::all_reduce, 2, 16384), "ring");
  ASSERT_EQ(table.rows().size(), 2U);
  EXPECT_EQ(table.rows()[1].min_bytes, 8192);
  EXPECT_THROW((void)make_choices(std::span{rows}.first(1)), InputError);
}

TEST(CollectivesWaits, SplitsACallAtTheLastArrival) {
  const std::vector<std::vector<Stamp>> stamps{{{1000, 9000}}, {{6000, 9500}}};
  const std::vector<std::vector<int>> members{{0, 1}, {0, 1}};
  const std::vector<Wait> waits = split_waits(stamps, members);
  EXPECT_EQ(waits[0].wait_us, 5);
  EXPECT_EQ(waits[0].transfer_us, 3);
  EXPECT_EQ(waits[1].wait_us, 0);
  EXPECT_EQ(waits[1].transfer_us, 3.5);
}

TEST(CollectivesColumns, NamesAreUniqueAndSkippedRowsEmpty) {
  std::vector<std::string> names = column_names();
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  Row skipped;
  skipped.status = Status::skipped;
  skipped.reason = "why";
  const RunIdentity run{"id", "cpu", "threads"};
  const std::vector<std::string> cells = cells_of({skipped, run});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (columns()[i].name == "time_us_p50") {
      EXPECT_EQ(cells[i], "");
    } else if (columns()[i].name == "status") {
      EXPECT_EQ(cells[i], "skipped");
    }
  }
  EXPECT_EQ(key_of({row_of(8, 1), run}), key_of({row_of(8, 2), run}));
  EXPECT_NE(key_of({row_of(8, 1), run}), key_of({row_of(16, 1), run}));
}

TEST(CollectivesColumns, ReadmeHasTheTable) {
  EXPECT_THAT(read_file(SHARDMARK_SOURCE_DIR "/results/README.md"), HasSubstr(columns_markdown()))
      << "put the output of shardmark-collectives --list-columns there";
}

TEST(CollectivesRow, BusBandwidthGoesByTheGroup) {
  Row row = row_of(8'000'000, 1000);
  EXPECT_EQ(row.algbw_GBps(), 8);
  EXPECT_EQ(row.busbw_GBps(), 8);
  row.point.group_size = 4;
  EXPECT_EQ(row.busbw_GBps(), 12);
  row.copy_us = 8e6 / 24e3;
  EXPECT_NEAR(row.efficiency_pct(), 50, 1e-9);
}

}  // namespace
}  // namespace shardmark::bench::collectives
