#include "bench/collectives/import.hpp"

#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace shardmark::bench::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Imported {
  std::vector<ImportedRow> rows;
  Problems problems;
};
Imported import_text(const std::string& text) {
  std::istringstream in{text};
  Imported result;
  result.rows = import_log(in, result.problems);
  return result;
}

// Invented numbers in the layouts of nccl-tests 2.13 and later, and of 2.0.
const std::string new_head =
    "# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 agg "
    "iters: 1 validation: 1 graph: 0\n"
    "#\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid   4001 on     hosta device  0 [0x07] Some GPU\n"
    "#  Rank  1 Group  0 Pid   4002 on     hosta device  1 [0x0a] Some GPU\n"
    "#\n"
    "#                                                              out-of-place                "
    "       in-place          \n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    " "
    " algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " "
    "(GB/s)  (GB/s)       \n";
const std::string row_1k =
    "        1024           256     float     sum      -1    10.00    0.10    0.10      0    20.00 "
    "  "
    " 0.05    0.05      0\n";
const std::string row_4m =
    "     4194304       1048576     float     sum      -1    100.0   41.94   41.94      0    200.0 "
    "  "
    "20.97   20.97    N/A\n";
const std::string foot = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 15.765 \n#\n";

TEST(ImportNccl, TakesBothPlacementsOfEveryRow) {
  const Imported log = import_text(new_head + row_1k + row_4m + foot);
  EXPECT_THAT(log.problems, IsEmpty());
  ASSERT_THAT(log.rows, SizeIs(4));
  const ImportedRow& row = log.rows[3];
  EXPECT_EQ(row.tool, "nccl-tests");
  EXPECT_EQ(row.collective, "all_reduce");
  EXPECT_EQ(row.bytes, 4194304);
  EXPECT_EQ(row.count, 1048576);
  EXPECT_EQ(row.dtype, "float");
  EXPECT_EQ(row.reduction, "sum");
  EXPECT_EQ(row.root, -1);
  EXPECT_TRUE(row.in_place);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.time_us, 200.0);
  EXPECT_EQ(row.algbw_GBps, 20.97);
  EXPECT_EQ(row.busbw_GBps, 20.97);
  EXPECT_FALSE(row.num_wrong);
  EXPECT_EQ(log.rows[2].num_wrong, 0);
}

TEST(ImportNccl, OldLayoutHasRelativeErrorsAndNoRoot) {
  const Imported log = import_text(
      "#       size         count    type   redop     time   algbw   busbw  error     time   algbw "
      " "
      " busbw  error\n"
      "        1024           256   float     sum    10.00    0.10    0.20  1e-06    20.00    0.05 "
      "  "
      " 0.10    N/A\n");
  ASSERT_THAT(log.rows, SizeIs(2));
  EXPECT_EQ(log.rows[0].max_error, 1e-6);
  EXPECT_FALSE(log.rows[0].num_wrong);
  EXPECT_FALSE(log.rows[0].root);
  EXPECT_FALSE(log.rows[0].ranks);
}

TEST(ImportNccl, CollectiveIsNamedByTheCommandLineOrByTheColumns) {
  const std::string row =
      "        2048           256     float    none      -1    10.00    0.20    0.10      0    "
      "10.00 "
      "   0.20    0.10      0\n";
  EXPECT_EQ(import_text(new_head + row).rows[0].collective, "");
  EXPECT_EQ(
      import_text("$ mpirun ./build/all_gather_perf -b 1k\n" + new_head + row).rows[0].collective,
      "all_gather");
  EXPECT_EQ(import_text("# Collective test starting: alltoall_perf\n" + new_head + row)
                .rows[0]
                .collective,
            "all_to_all");
  const std::string scatter =
      "        2048           256     float     sum      -1    10.00    0.20    0.10      0    "
      "10.00 "
      "   0.20    0.10      0\n";
  EXPECT_EQ(import_text(new_head + scatter).rows[1].collective, "reduce_scatter");
}

TEST(ImportNccl, EmptyFirstRowsLearnTheCollectiveFromLaterOnes) {
  const std::string empty =
      "           0             0     float     sum      -1    10.00    0.00    0.00      0    "
      "10.00 "
      "   0.00    0.00      0\n";
  const Imported log = import_text(new_head + empty + row_1k);
  EXPECT_EQ(log.rows[0].collective, "all_reduce");
}

TEST(ImportNccl, PrefixesAreTakenOff) {
  for (const std::string prefix : {"[1,0]<stdout>:", ">   [1,0]<stdout>:", " 0: ", "node1: ",
                                   "node1 | ", "2026-01-31T12:30:01Z ", "2026-01-31 12:30:01.250 ",
                                   "[2026-01-31 12:30:01] node1: ", "[pod/a-0/main] "}) {
    std::istringstream lines{new_head + row_1k + row_4m + foot};
    std::string text;
    for (std::string line; std::getline(lines, line);) text += prefix + line + "\r\n";
    const Imported log = import_text(text);
    EXPECT_THAT(log.rows, SizeIs(4)) << prefix;
    EXPECT_THAT(log.problems, IsEmpty()) << prefix << log.problems[0].reason;
  }
}

TEST(ImportNccl, NoiseBetweenRowsIsIgnoredAndWithinARowReported) {
  const Imported log = import_text(
      new_head + "hosta:4001:4001 [0] NCCL INFO Launch mode Parallel\n" + row_1k +
      "warning: something\n" +
      "        2048           512     float     sum      -1    20.00    0.10    0.10      0 "
      "hosta:4001:4019 [0] NCCL INFO Channel 00\n" +
      row_4m);
  ASSERT_THAT(log.rows, SizeIs(5));
  EXPECT_EQ(log.rows[2].bytes, 2048);
  EXPECT_FALSE(log.rows[2].in_place);
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_EQ(log.problems[0].line, 13);
  EXPECT_THAT(log.problems[0].reason, HasSubstr("in place: field 10 is hosta:4001:4019"));
}

TEST(ImportNccl, TruncatedRowGivesWhatIsWholeAndTheReason) {
  const std::string cut_in_place = row_4m.substr(0, row_4m.find("200.0") + 5);
  Imported log = import_text(new_head + row_1k + cut_in_place);
  ASSERT_THAT(log.rows, SizeIs(3));
  EXPECT_EQ(log.rows[2].time_us, 100.0);
  ASSERT_FALSE(log.problems.empty());
  EXPECT_EQ(log.problems[0].line, 11);
  EXPECT_THAT(log.problems[0].reason, HasSubstr("in place: the row ends after 10 fields of 13"));

  log = import_text(new_head + row_1k + row_4m.substr(0, 34));
  EXPECT_THAT(log.rows, SizeIs(2));
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("ends after 3 fields"));

  log = import_text(new_head + row_1k + row_4m.substr(0, row_4m.size() - 1));
  EXPECT_THAT(log.rows, SizeIs(4));
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("no newline"));
}

TEST(ImportNccl, SeveralRunsAreNumberedAndKeepTheirRanks) {
  const Imported log =
      import_text(new_head + row_1k + foot + "./all_reduce_perf\n" + new_head + row_4m + "#\n");
  ASSERT_THAT(log.rows, SizeIs(4));
  EXPECT_EQ(log.rows[1].run, 0);
  EXPECT_EQ(log.rows[2].run, 1);
  // The footer belongs to rows that are not there.
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("the footer says 15.765"));
}

TEST(ImportNccl, ProcessesWithPrefixesOfTheirOwnDoNotMix) {
  std::string text;
  std::istringstream lines{new_head + row_1k + row_4m};
  for (std::string line; std::getline(lines, line);) text += "a: " + line + "\nb: " + line + "\n";
  const Imported log = import_text(text);
  EXPECT_THAT(log.problems, IsEmpty());
  ASSERT_THAT(log.rows, SizeIs(8));
  EXPECT_NE(log.rows[0].run, log.rows[2].run);
}

TEST(ImportNccl, RowsWithoutHeaderSplitWhereSizesFall) {
  const Imported log = import_text("== one\n" + row_1k + row_4m + "== two\n" + row_1k);
  ASSERT_THAT(log.rows, SizeIs(6));
  EXPECT_EQ(log.rows[3].run, 0);
  EXPECT_EQ(log.rows[4].run, 1);
}

TEST(ImportNccl, NotAvailableGroupsGiveNoRow) {
  const Imported log = import_text(new_head +
                                   "        1024           256     float    none      -1    10.00  "
                                   "  0.10    0.05      0      N/A "
                                   "    N/A     N/A    N/A\n");
  EXPECT_THAT(log.rows, SizeIs(1));
  EXPECT_THAT(log.problems, IsEmpty());
}

TEST(ImportNccl, ContradictionsAreReported) {
  const Imported log = import_text(new_head +
                                   "     4194304       1048576     float     sum      -1    100.0  "
                                   " 41.94   62.91      0    200.0 "
                                   "  30.97   30.97      7\n" +
                                   "# Out of bounds values : 7 FAILED\n");
  EXPECT_THAT(log.rows, SizeIs(2));
  ASSERT_THAT(log.problems, SizeIs(3));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("busbw is 62.91 GB/s, but all_reduce on 2 ranks"));
  EXPECT_THAT(log.problems[1].reason, HasSubstr("algbw is 30.97"));
  EXPECT_THAT(log.problems[2].reason, HasSubstr("7 values out of bounds"));
}

TEST(ImportNccl, NumbersOutOfRangeAreRefused) {
  const Imported log = import_text(new_head +
                                   "99999999999999999999       1048576     float     sum      -1   "
                                   " 100.0   41.94   41.94      0  "
                                   "  200.0   20.97   20.97      0\n");
  EXPECT_THAT(log.rows, IsEmpty());
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("99999999999999999999 is out of range"));
}

TEST(ImportNccl, FurtherColumnsAreKept) {
  std::string head = new_head;
  head.replace(head.rfind("#wrong") + 6, 0, "  algorithm  cv(%)");
  const Imported log = import_text(head + row_1k.substr(0, row_1k.size() - 1) + "  ring   1.5\n");
  EXPECT_THAT(log.problems, IsEmpty());
  ASSERT_THAT(log.rows, SizeIs(2));
  EXPECT_EQ(log.rows[1].title, "algorithm ring");
  EXPECT_THAT(log.rows[1].others, ElementsAre(std::pair<std::string, double>{"cv(%)", 1.5}));
}

TEST(ImportNccl, EachHalfGetsItsOwnPercentiles) {
  std::string head = new_head;
  head.replace(head.rfind("#wrong") + 6, 0, "  algorithm  p10(us)  cv(%)  in:p10(us)  in:cv(%)");
  const Imported log =
      import_text(head + row_1k.substr(0, row_1k.size() - 1) + "  ring   9.5  1.5  19.5  2.5\n");
  using Others = std::vector<std::pair<std::string, double>>;
  ASSERT_THAT(log.rows, SizeIs(2));
  EXPECT_EQ(log.rows[0].others, (Others{{"p10(us)", 9.5}, {"cv(%)", 1.5}}));
  EXPECT_EQ(log.rows[1].others, (Others{{"p10(us)", 19.5}, {"cv(%)", 2.5}}));
  EXPECT_EQ(log.rows[1].title, "algorithm ring");
}

TEST(ImportNccl, RcclIsTold) {
  EXPECT_EQ(import_text("# nThread 1 nGpus 1\nrccl-tests: Version develop:0\n" +
                        new_head.substr(new_head.find("#\n")) + row_1k)
                .rows[0]
                .tool,
            "rccl-tests");
}

TEST(ImportOsu, LatencyWithMinAndMax) {
  const Imported log = import_text(
      "# OSU MPI Allreduce Latency Test v7.1\n# Datatype: MPI_CHAR.\n"
      "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
      "1                       7.25              6.50              8.75        1000\n"
      "2                       7\n");
  ASSERT_THAT(log.rows, SizeIs(1));
  const ImportedRow& row = log.rows[0];
  EXPECT_EQ(row.tool, "osu");
  EXPECT_EQ(row.title, "OSU MPI Allreduce Latency Test v7.1");
  EXPECT_EQ(row.collective, "all_reduce");
  EXPECT_EQ(row.dtype, "MPI_CHAR");
  EXPECT_EQ(row.bytes, 1);
  EXPECT_EQ(row.time_us, 7.25);
  EXPECT_EQ(row.min_us, 6.5);
  EXPECT_EQ(row.max_us, 8.75);
  EXPECT_EQ(row.iterations, 1000);
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_EQ(log.problems[0].line, 5);
  EXPECT_THAT(log.problems[0].reason, HasSubstr("2 fields where OSU MPI Allreduce"));
}

TEST(ImportOsu, BandwidthIsInMillionBytes) {
  const Imported log = import_text(
      "# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n"
      "4                       1.19\n1048576             12345.67\n");
  ASSERT_THAT(log.rows, SizeIs(2));
  EXPECT_EQ(log.rows[0].algbw_GBps, 0.00119);
  EXPECT_EQ(log.rows[1].algbw_GBps, 12.34567);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_EQ(log.rows[0].collective, "send_recv");
}

TEST(ImportOsu, ColumnsWithoutAFieldAreKept) {
  const Imported log = import_text(
      "# OSU MPI Non-blocking Allreduce Latency Test v5.7.1\n"
      "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
      "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"
      "4                      70.50             54.25             50.75             68.15\n"
      "# OSU MPI Multiple Bandwidth / Message Rate Test v5.7.1\n"
      "# [ pairs: 3 ] [ window size: 64 ]\n"
      "# Size                  MB/s        Messages/s\n"
      "4                     126.50       31625000.50\n");
  ASSERT_THAT(log.rows, SizeIs(2));
  EXPECT_EQ(log.rows[0].time_us, 50.75);
  EXPECT_THAT(log.rows[0].others, ElementsAre(std::pair<std::string, double>{"Overall(us)", 70.5},
                                              std::pair<std::string, double>{"Compute(us)", 54.25},
                                              std::pair<std::string, double>{"Overlap(%)", 68.15}));
  EXPECT_EQ(log.rows[1].run, 1);
  EXPECT_EQ(log.rows[1].ranks, 6);
  EXPECT_EQ(log.rows[1].algbw_GBps, 0.1265);
}

TEST(ImportOsu, BarrierHasNoSizeAndValidationIsKept) {
  const Imported log = import_text(
      "# OSU MPI Barrier Latency Test v5.7.1\n"
      "# Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
      "            41.25             41.00             41.50        1000\n"
      "# OSU MPI Broadcast Latency Test v7.3\n# Size       Avg Latency(us)        Validation\n"
      "8                       2.50              Pass\n16                      2.75              "
      "Fail\n"
      "32                      2.75              Unknown\n");
  ASSERT_THAT(log.rows, SizeIs(3));
  EXPECT_EQ(log.rows[0].collective, "barrier");
  EXPECT_EQ(log.rows[0].bytes, 0);
  EXPECT_EQ(log.rows[0].time_us, 41.25);
  EXPECT_EQ(log.rows[1].num_wrong, 0);
  EXPECT_THAT(log.rows[2].others, SizeIs(1));
  ASSERT_THAT(log.problems, SizeIs(1));
  EXPECT_THAT(log.problems[0].reason, HasSubstr("Validation is Unknown"));
}

TEST(ImportRun, WritesCsvAndNamesWhatItExpected) {
  const std::string folder = scratch_folder();
  const std::string log = folder + "/log", foreign = folder + "/foreign";
  std::ofstream{log} << new_head << row_1k << foot.substr(0, foot.find("# Avg"));
  std::ofstream{foreign} << "size time\n1 2\n";
  std::ostringstream out, problems;
  EXPECT_EQ(run_import({log, foreign}, folder + "/out", out, problems), 1);
  EXPECT_THAT(problems.str(), HasSubstr("expected a table under '# size count type"));
  const auto table = parse_csv(read_file(folder + "/out/imported.csv"));
  ASSERT_THAT(table, SizeIs(3));
  EXPECT_EQ(table[0], imported_columns());
  EXPECT_EQ(table[1].size(), imported_columns().size());
  // Once more does not double the rows.
  EXPECT_EQ(run_import({log}, folder + "/out", out, problems), 0);
  EXPECT_THAT(parse_csv(read_file(folder + "/out/imported.csv")), SizeIs(3));
  EXPECT_THAT(parse_csv(read_file(folder + "/out/imported.csv.old")), SizeIs(3));
  EXPECT_EQ(run_import({foreign}, "", out, problems), 2);
  EXPECT_THROW((void)run_import({folder + "/none"}, "", out, problems), InputError);
}

}  // namespace
}  // namespace shardmark::bench::collectives
