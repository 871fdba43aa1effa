// Exports that lack something, and files that are no exports, or are made to do harm.

#include "core/error.hpp"
#include "profiler/read/read.hpp"
#include "tests/analyze/nsys_file.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

namespace shardmark {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// One of everything: kernel, copy, set, two launches, two ranges, a step.
void fill(NsysFile& file) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  file.kernel(100, 110, gemm, 0, 7, 1);
  file.insert("CUPTI_ACTIVITY_KIND_MEMCPY", 120, 130, 0, 8, 2, global_id(100), 64, 1, 0, 0);
  file.insert("CUPTI_ACTIVITY_KIND_MEMSET", 140, 150, 0, 8, 3, global_id(100));
  file.call(90, 91, 1).call(115, 116, 2);
  file.range(80, 200, "ProfilerStep#1").range(85, 190, "forward").range(86, 180, "ncclAllReduce");
}

class NsysFaults : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder + '/' + name; }
  [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream{path(name), std::ios::binary} << bytes;
    return path(name);
  }
  static std::string error_of(const std::string& file) {
    try {
      (void)read_nsys(file);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string folder{bench::scratch_folder()};
};

std::string bytes_of(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

TEST_F(NsysFaults, AnyTableMayBeMissing) {
  const std::vector<std::string> tables{"StringIds",
                                        "CUPTI_ACTIVITY_KIND_KERNEL",
                                        "CUPTI_ACTIVITY_KIND_MEMCPY",
                                        "NVTX_EVENTS",
                                        "CUPTI_ACTIVITY_KIND_MEMSET",
                                        "CUPTI_ACTIVITY_KIND_RUNTIME",
                                        "META_DATA_EXPORT",
                                        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                                        "TARGET_INFO_GPU",
                                        "TARGET_INFO_SYSTEM_ENV"};
  for (const std::string& table : tables) {
    SCOPED_TRACE(table);
    NsysFile file{path(table + ".sqlite")};
    fill(file);
    file.run("DROP TABLE " + table);
    const std::vector<Timeline> timelines = read_nsys(file.path());
    ASSERT_THAT(timelines, SizeIs(1));
    const bool has_work = table.starts_with("CUPTI_") && table != "CUPTI_ACTIVITY_KIND_RUNTIME";
    EXPECT_THAT(timelines[0].events, SizeIs(has_work ? 2 : 3));
    EXPECT_THAT(timelines[0].ranges, SizeIs(table == "NVTX_EVENTS" ? 0 : 1));
    EXPECT_THAT(timelines[0].steps, SizeIs(table == "NVTX_EVENTS" ? 0 : 1));
    EXPECT_EQ(timelines[0].format,
              table == "META_DATA_EXPORT" ? "Nsight Systems" : "Nsight Systems 3.13");
    EXPECT_EQ(timelines[0].cut, "");
  }
}

TEST_F(NsysFaults, AnyColumnMayBeMissing) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> columns{
      {"CUPTI_ACTIVITY_KIND_KERNEL",
       {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName",
        "shortName", "mangledName"}},
      {"CUPTI_ACTIVITY_KIND_MEMCPY", {"copyKind", "srcDeviceId", "dstDeviceId", "globalPid"}},
      {"CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "globalTid", "correlationId"}},
      {"NVTX_EVENTS",
       {"start", "end", "eventType", "text", "textId", "globalTid", "domainId", "binaryData"}}};
  for (const auto& [table, names] : columns)
    for (const std::string& column : names) {
      SCOPED_TRACE(message(table, '.', column));
      NsysFile file{path(column + table + ".sqlite")};
      fill(file);
      file.run("ALTER TABLE " + table + " DROP COLUMN " + column);
      const std::vector<Timeline> timelines = read_nsys(file.path());
      ASSERT_THAT(timelines, SizeIs(1));
      const bool is_time = column == "start" || column == "end";
      const bool is_kernel = table == "CUPTI_ACTIVITY_KIND_KERNEL";
      EXPECT_THAT(timelines[0].events, SizeIs(is_kernel && is_time ? 2 : 3));
      // Without times of kernels there are none.
      EXPECT_THAT(timelines[0].warnings, SizeIs(is_kernel && is_time                        ? 2
                                                : table == "NVTX_EVENTS" && column == "end" ? 1
                                                                                            : 0));
      for (const DeviceEvent& event : timelines[0].events)
        if (event.work == DeviceWork::kernel) {
          EXPECT_EQ(timelines[0].names.at(event.name), "gemm");
        }
    }
}

TEST_F(NsysFaults, WithoutNamesOrKernelsItIsSaidThatCommunicationIsNotKnown) {
  const auto without = [&](const std::string& table) {
    NsysFile file{path(table + ".sqlite")};
    fill(file);
    if (!table.empty()) file.run("DROP TABLE " + table);
    return read_nsys(file.path()).at(0);
  };
  EXPECT_EQ(without("").no_classes, "");
  const Timeline no_names = without("StringIds"),
                 no_kernels = without("CUPTI_ACTIVITY_KIND_KERNEL");
  EXPECT_THAT(no_names.no_classes, HasSubstr("no names of kernels (table StringIds)"));
  EXPECT_THAT(no_names.warnings, ElementsAre(no_names.no_classes));
  EXPECT_THAT(no_kernels.no_classes, HasSubstr("no table of kernels"));
  EXPECT_THAT(no_kernels.warnings, ElementsAre(no_kernels.no_classes));
}

TEST_F(NsysFaults, AKernelWithoutANameIsCounted) {
  NsysFile file{path("export.sqlite")};
  fill(file);
  file.kernel(300, 310, 99);
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_EQ(timeline.no_classes, "");
  EXPECT_THAT(timeline.warnings,
              ElementsAre("1 kernel has no name in the file and counts as compute"));
}

TEST_F(NsysFaults, AMissingColumnIsNamed) {
  NsysFile file{path("export.sqlite")};
  file.run(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, end INTEGER, deviceId INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0)");
  EXPECT_THAT(read_nsys(file.path()).at(0).warnings,
              ElementsAre("table CUPTI_ACTIVITY_KIND_KERNEL has no column start, so its rows are "
                          "left out"));
}

TEST_F(NsysFaults, TablesWithAVersionAreFound) {
  NsysFile file{path("export.sqlite")};
  fill(file);
  file.run("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO cupti_activity_kind_kernel_v3");
  file.run("ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_2");
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_THAT(timeline.events, SizeIs(3));
  EXPECT_THAT(timeline.ranges, SizeIs(1));
}

TEST_F(NsysFaults, StringsWithoutAKeyAreFound) {
  NsysFile file{path("export.sqlite")};
  fill(file);
  file.run(
      "CREATE TABLE Copy AS SELECT * FROM StringIds; DROP TABLE StringIds;"
      "ALTER TABLE Copy RENAME TO StringIds");
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_EQ(timeline.names.at(timeline.events.at(0).name), "gemm");
}

TEST_F(NsysFaults, RowsWithoutWholeTimesAreLeftOutAndCounted) {
  NsysFile file{path("export.sqlite")};
  fill(file);
  const std::int64_t gemm = file.text("gemm");
  const auto kernel = [&](const std::string& start_end, const std::string& device) {
    file.insert("CUPTI_ACTIVITY_KIND_KERNEL", start_end, device, 7, 0, global_id(100), gemm, gemm,
                "NULL", "NULL");
  };
  kernel("'soon', 5", "0");
  kernel("1.5, 5", "0");
  kernel("-9223372036854775807, 9223372036854775807", "0");
  kernel("1, 5", "-1");
  kernel("1, 5", "4000000000");
  kernel("300, 290", "0");  // ends before it starts: kept
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_THAT(timeline.events, SizeIs(4));
  EXPECT_EQ(timeline.events.back().time.end_ns, 290);
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("5 rows of GPU work are left out"),
                                             HasSubstr("ends before it starts")));
}

TEST_F(NsysFaults, AnExportWithoutGpuWorkIsATimelineWithoutEvents) {
  NsysFile file{path("export.sqlite")};
  file.run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)");
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_THAT(timeline.events, IsEmpty());
  EXPECT_THAT(timeline.warnings, ElementsAre(AllOf(HasSubstr("no table CUPTI_ACTIVITY_KIND_KERNEL"),
                                                   HasSubstr("--trace=cuda,nvtx"))));
}

TEST_F(NsysFaults, OtherDatabasesAreRefusedWithTheirTables) {
  NsysFile file{path("other.sqlite")};
  file.run("CREATE TABLE customers (id INTEGER); CREATE TABLE orders (id INTEGER)");
  EXPECT_THAT(error_of(file.path()),
              AllOf(HasSubstr("other.sqlite is an SQLite database, but no export"),
                    HasSubstr("customers, orders"), HasSubstr("nsys export --type sqlite")));
}

TEST_F(NsysFaults, FilesThatAreNoDatabasesAreRefused) {
  EXPECT_THAT(error_of(write("empty", "")), HasSubstr("empty is empty"));
  EXPECT_THAT(error_of(write("text", "not a database at all")), HasSubstr("no readable SQLite"));
  EXPECT_THAT(error_of(write("header", "SQLite format 3")), HasSubstr("no readable SQLite"));
  EXPECT_THAT(error_of(path("missing")), HasSubstr("cannot read"));
  EXPECT_THAT(error_of(folder), HasSubstr("cannot read"));
}

TEST_F(NsysFaults, ADamagedTableIsReadUpToTheDamage) {
  NsysFile file{path("export.sqlite")};
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  file.run("BEGIN");
  for (int i = 0; i < 2000; ++i) file.kernel(10 * i, 10 * i + 5, gemm);
  file.run("COMMIT");
  const std::string whole = bytes_of(file.path());
  const std::string cut = write("cut.sqlite", whole.substr(0, whole.size() / 2));
  const std::vector<Timeline> timelines = read_nsys(cut);
  ASSERT_THAT(timelines, SizeIs(1));
  EXPECT_GT(timelines[0].events.size(), 100U);
  EXPECT_LT(timelines[0].events.size(), 2000U);
  EXPECT_THAT(timelines[0].cut,
              AllOf(HasSubstr("table CUPTI_ACTIVITY_KIND_KERNEL"), HasSubstr("damaged after")));
}

TEST_F(NsysFaults, EveryCutOfAFileIsReadOrRefused) {
  NsysFile file{path("export.sqlite")};
  fill(file);
  const std::string whole = bytes_of(file.path());
  for (std::size_t size = 1; size < whole.size(); size += 509) {
    const std::string cut = write("cut.sqlite", whole.substr(0, size));
    const std::string error = error_of(cut);
    EXPECT_THAT(error, testing::AnyOf("no error", HasSubstr("cut.sqlite"))) << size;
  }
}

TEST_F(NsysFaults, ViewsInPlaceOfTablesAreNotRun) {
  NsysFile file{path("export.sqlite")};
  file.run(R"(CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
      SELECT i AS start, i + 1 AS end, 0 AS deviceId FROM n)");
  EXPECT_THAT(read_nsys(file.path()).at(0).events, IsEmpty());
}

TEST_F(NsysFaults, NamesOfMegabytesAndOfQuotesAreRead) {
  NsysFile file{path("export.sqlite")};
  file.create_tables();
  const std::string quotes = R"(a "b" ''c'' %n)";
  file.kernel(10, 20, file.text(std::string(1 << 20, 'x')));
  file.kernel(30, 40, file.text(quotes));
  const Timeline timeline = read_nsys(file.path()).at(0);
  EXPECT_EQ(timeline.names.at(timeline.events.at(0).name).size(), 1U << 20U);
  EXPECT_EQ(timeline.names.at(timeline.events.at(1).name), R"(a "b" 'c' %n)");
}

TEST_F(NsysFaults, PathsWithAnyCharactersOpen) {
  NsysFile file{path("a b%20?c#d.sqlite")};
  fill(file);
  EXPECT_THAT(read_nsys(file.path()).at(0).events, SizeIs(3));
}

}  // namespace
}  // namespace shardmark
