// Faults of other tools that their users reported in public: a small recording of each, with the
// right figures.

#include "core/error.hpp"
#include "profiler/account.hpp"
#include "profiler/impossible_times.hpp"
#include "profiler/read/read.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>
#include <sqlite3.h>

#include <fstream>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A complete event; times in microseconds as they are to stand in the text.
std::string event(const std::string& category, const std::string& name, const std::string& start,
                  const std::string& duration, const std::string& args = "") {
  return message(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name,
                 R"(", "pid": 0, "tid": 7, "ts": )", start, R"(, "dur": )", duration,
                 R"(, "args": {)", args, "}}");
}
std::string kernel(const std::string& name, const std::string& start, const std::string& duration,
                   const std::string& args = R"("stream": 7, "device": 0)") {
  return event("kernel", name, start, duration, args);
}

std::string joined(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& one : events) text += (text.empty() ? "" : ",\n") + one;
  return text;
}

Timeline read_text(const std::string& text) {
  const std::string path = bench::scratch_folder() + "/trace.json";
  std::ofstream{path, std::ios::binary} << text;
  std::vector<Timeline> timelines = read_recording(path);
  EXPECT_THAT(timelines, SizeIs(1));
  return std::move(timelines.at(0));
}
Timeline read_events(const std::vector<std::string>& events) {
  return read_text(R"({"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 2},
"traceEvents": [)" +
                   joined(events) + "]}");
}

std::optional<Account> account_of(const Timeline& timeline, const Window& window = {"trace", {}}) {
  return account(timeline, classify(timeline, CommRule::automatic, {}), window);
}
Account account_of_events(const std::vector<std::string>& events) {
  return account_of(read_events(events)).value();
}

// Renamed kernels were counted as compute: ncclKernel_ became ncclDevKernel_ with NCCL 2.19, and
// symmetric ones came with 2.27.
TEST(PublicFaults, KernelNamesOfNewNcclVersionsAreCommunication) {
  const Account account = account_of_events(
      {kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "0", "10"),
       kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "20",
              "10"),
       kernel("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32", "40", "10"),
       kernel("ncclDevFunc_AllGather_RING_LL", "60", "10"), kernel("gemm", "80", "10")});
  EXPECT_EQ(account.num_comm, 4);
  EXPECT_EQ(account.comm_ns, 40'000);
  EXPECT_EQ(account.compute_ns, 10'000);
}

// Division by no communication gave NaN, or an overlap of 0 that looked like a finding.
TEST(PublicFaults, WithoutCommunicationThereIsNothingToOverlap) {
  const Account account = account_of_events({kernel("gemm", "0", "10")});
  EXPECT_EQ(account.num_comm, 0);
  EXPECT_EQ(account.comm_ns, 0);
  EXPECT_EQ(account.exposed_comm_ns, 0);
}

// Waits for streams and annotations carry stream numbers and were counted as kernels.
TEST(PublicFaults, SynchronisationAndAnnotationsAreNotGpuWork) {
  const std::string place = R"("stream": 7, "device": 0)";
  const Timeline timeline = read_events({kernel("gemm", "100", "10"),
                                         event("cuda_sync", "Stream Wait Event", "0", "500", place),
                                         event("cuda_sync", "Event Sync", "0", "500", place),
                                         event("gpu_user_annotation", "forward", "0", "500", place),
                                         event("cpu_op", "triton_kernel", "0", "500", place),
                                         event("overhead", "Buffer Flush", "0", "500", place)});
  EXPECT_THAT(timeline.events, SizeIs(1));
  EXPECT_EQ(account_of(timeline)->span_ns, 10'000);
}

// The last step was dropped, and its kernels with it.
TEST(PublicFaults, TheLastStepIsThere) {
  const Timeline timeline = read_events(
      {event("user_annotation", "ProfilerStep#8", "0", "50"), kernel("gemm", "10", "30"),
       event("user_annotation", "ProfilerStep#9", "50", "50"), kernel("gemm", "70", "20")});
  const std::vector<Window> windows = windows_of(timeline);
  ASSERT_THAT(windows, SizeIs(3));
  EXPECT_EQ(windows[2].name, "step:ProfilerStep#9");
  EXPECT_EQ(account_of(timeline, windows[1])->compute_ns, 30'000);
  EXPECT_EQ(account_of(timeline, windows[2])->compute_ns, 20'000);
  EXPECT_EQ(account_of(timeline, windows[2])->idle_ns, 30'000);
}

// Traces of one step or none were refused.
TEST(PublicFaults, OneStepOrNoneIsEnough) {
  const Timeline one =
      read_events({event("user_annotation", "ProfilerStep#3", "0", "50"), kernel("a", "10", "5")});
  EXPECT_THAT(windows_of(one), SizeIs(2));
  const Timeline none = read_events({kernel("a", "10", "5")});
  EXPECT_THAT(windows_of(none), SizeIs(1));
  EXPECT_EQ(account_of(none)->compute_ns, 5000);
}

TEST(PublicFaults, DistributedInfoMayBeMissing) {
  const Timeline timeline = read_text(message("{\"traceEvents\": [", kernel("a", "10", "5"), "]}"));
  EXPECT_EQ(timeline.rank, -1);
  EXPECT_EQ(timeline.world_size, 0);
  EXPECT_EQ(account_of(timeline)->compute_ns, 5000);
}

TEST(PublicFaults, MetadataAloneHasNoGpuWork) {
  const Timeline timeline =
      read_events({R"({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}})",
                   R"({"ph": "i", "name": "Record Window End", "ts": 5, "s": "g"})"});
  EXPECT_THAT(timeline.events, IsEmpty());
  EXPECT_FALSE(account_of(timeline));
}

// Kernels at time 0, which CUPTI gives where it could not collect times, made a trace of 50 years.
TEST(PublicFaults, TimestampsOfZeroDoNotStretchTheTrace) {
  Timeline timeline =
      read_events({kernel("lost", "0", "0"), kernel("gemm", "1700000000000000", "10"),
                   kernel("gemm", "1700000000000015", "10")});
  correct_impossible_times(timeline);
  EXPECT_EQ(account_of(timeline)->span_ns, 25'000);
  EXPECT_EQ(account_of(timeline)->idle_ns, 5000);
}

// Sums of durations gave more than 100 % where kernels overlap on a stream.
TEST(PublicFaults, OverlappingKernelsOnOneStreamCountOnce) {
  Timeline timeline = read_events({kernel("a", "0", "10.5"), kernel("b", "10", "10")});
  correct_impossible_times(timeline);
  EXPECT_EQ(account_of(timeline)->compute_ns, 20'000);
  EXPECT_EQ(account_of(timeline)->busy_ns, 20'000);
}

// A corrupt duration covers everything behind it.
TEST(PublicFaults, CorruptLongDurationsAreNotBelieved) {
  Timeline timeline =
      read_events({kernel("a", "0", "9000000"), kernel("b", "10", "10"), kernel("c", "30", "10")});
  EXPECT_EQ(account_of(timeline)->compute_ns, 9'000'000'000);  // as the file has it
  correct_impossible_times(timeline);
  EXPECT_EQ(account_of(timeline)->compute_ns, 10'000 + 10'000 + 10'000);
  EXPECT_EQ(account_of(timeline)->span_ns, 40'000);
  EXPECT_THAT(timeline.warnings, testing::Contains(HasSubstr("which cannot be: cut")));
}

// Before 2023 External id repeats the correlation; a host operation of that number did not launch
// the kernel.
TEST(PublicFaults, ExternalIdsThatEqualTheCorrelationAreNotTheHostOperation) {
  const Timeline timeline =
      read_events({event("cpu_op", "record_param_comms", "1", "2",
                         R"("External id": 5, "Collective name": "allreduce", "dtype": "Float")"),
                   event("cuda_runtime", "cudaLaunchKernel", "20", "2", R"("correlation": 5)"),
                   kernel("gemm", "30", "5",
                          R"("External id": 5, "correlation": 5, "stream": 7, "device": 0)")});
  ASSERT_THAT(timeline.events, SizeIs(1));
  EXPECT_EQ(timeline.events[0].launch_ns, 20'000);
  EXPECT_EQ(timeline.events[0].call, no_index);
  EXPECT_EQ(account_of(timeline)->compute_ns, 5000);
}

// Kernels whose launch is not in the file were dropped, all of them without host events.
TEST(PublicFaults, KernelsCountWithoutTheirLaunch) {
  const Timeline timeline = read_events({kernel("a", "0", "10", R"("correlation": 77)"),
                                         event("gpu_memcpy", "Memcpy HtoD", "10", "5"),
                                         event("gpu_memset", "Memset", "20", "5")});
  const Account account = account_of(timeline).value();
  EXPECT_EQ(account.num_kernels, 1);
  EXPECT_EQ(account.num_copies, 2);
  EXPECT_EQ(account.copy_ns, 10'000);
  EXPECT_EQ(timeline.events[0].launch_ns, no_time);
}

// Clocks that drift put a launch behind its kernel; such kernels were dropped, or waited less than
// nothing.
TEST(PublicFaults, AKernelBeforeItsLaunchCounts) {
  const Timeline timeline =
      read_events({event("cuda_runtime", "cudaLaunchKernel", "12", "2", R"("correlation": 5)"),
                   kernel("gemm", "10", "5", R"("correlation": 5, "stream": 7, "device": 0)")});
  EXPECT_EQ(timeline.events[0].launch_ns, 12'000);
  EXPECT_EQ(account_of(timeline)->compute_ns, 5000);
  EXPECT_THAT(timeline.warnings, testing::Contains(HasSubstr("before its launch")));
}

// Names with raw quotes, line breaks, tabs, paths of Windows and bytes that are no UTF-8 made whole
// files unreadable.
TEST(PublicFaults, NamesWithRawCharactersDoNotStopTheReader) {
  for (const std::string& name : {std::string{"say \"hello\""}, std::string{"line\nbreak\ttab"},
                                  std::string{"C:\\Users\\x"}, std::string{"byte \xff\xfe"}}) {
    SCOPED_TRACE(name);
    const Timeline timeline =
        read_events({event("user_annotation", name, "0", "50"), kernel(name, "0", "10"),
                     kernel("ncclDevKernel_AllReduce", "10", "10")});
    EXPECT_THAT(timeline.cut, IsEmpty());
    ASSERT_THAT(timeline.events, SizeIs(2));
    EXPECT_EQ(account_of(timeline)->compute_ns, 10'000);
    EXPECT_EQ(account_of(timeline)->comm_ns, 10'000);
  }
}

TEST(PublicFaults, ABareArrayIsATrace) {
  const Timeline timeline = read_text(message('[', joined({kernel("a", "0", "10")}), ']'));
  EXPECT_EQ(account_of(timeline)->compute_ns, 10'000);
}

// Floating-point microseconds since 1970 lose nanoseconds.
TEST(PublicFaults, NanosecondsSinceTheEpochAreExact) {
  const Account account = account_of_events(
      {kernel("a", "1700000000000000.001", "0.003"), kernel("b", "1700000000000000.005", "0.002")});
  EXPECT_EQ(account.span.start_ns, 1'700'000'000'000'000'001);
  EXPECT_EQ(account.span_ns, 6);
  EXPECT_EQ(account.compute_ns, 5);
  EXPECT_EQ(account.idle_ns, 1);
}

/// Timelines of an export with these statements; kernels have `columns`.
std::vector<Timeline> read_export(const std::string& sql) {
  const std::string path = bench::scratch_folder() + "/export.sqlite";
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* problem = nullptr;
  sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &problem);
  EXPECT_EQ(problem, nullptr) << problem;
  sqlite3_free(problem);
  sqlite3_close(database);
  return read_recording(path);
}
std::string strings() {
  return "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
         "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32');";
}
std::string kernels(const std::string& table) {
  return "CREATE TABLE " + table +
         " (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT,"
         "  demangledName INT, shortName INT);"
         "INSERT INTO " +
         table +
         " VALUES (100, 140, 0, 7, 1, 1, 1, 1), (120, 180, 0, 9, 2, 1, 2, 2),"
         " (500, 530, 1, 7, 3, 1, 1, 1), (540, 600, 1, 9, 4, 1, 2, 2);";
}

// Only device 0 was analysed, or the devices were summed up as one.
TEST(PublicFaults, EveryDeviceOfAnExportIsARankOfItsOwn) {
  const std::vector<Timeline> timelines =
      read_export(strings() + kernels("CUPTI_ACTIVITY_KIND_KERNEL"));
  ASSERT_THAT(timelines, SizeIs(2));
  const Account first = account_of(timelines[0]).value();
  EXPECT_EQ(first.span_ns, 80);
  EXPECT_EQ(first.compute_ns, 40);
  EXPECT_EQ(first.overlapped_ns, 20);
  EXPECT_EQ(first.exposed_comm_ns, 40);
  const Account second = account_of(timelines[1]).value();
  EXPECT_EQ(second.span_ns, 100);
  EXPECT_EQ(second.overlapped_ns, 0);
  EXPECT_EQ(second.idle_ns, 10);
}

// Without NVTX_EVENTS, RUNTIME or MEMCPY, or with versions in tables' names, exporters' readers
// stopped.
TEST(PublicFaults, TablesMayBeMissingOrHaveVersionsInTheirNames) {
  for (const char* table : {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL_V3",
                            "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"}) {
    SCOPED_TRACE(table);
    const std::vector<Timeline> timelines = read_export(strings() + kernels(table));
    ASSERT_THAT(timelines, SizeIs(2));
    EXPECT_EQ(account_of(timelines[0])->comm_ns, 60);
  }
  const std::vector<Timeline> empty = read_export(strings());
  for (const Timeline& timeline : empty) EXPECT_FALSE(account_of(timeline));
}

}  // namespace
}  // namespace shardmark
