// Exports of Nsight Systems, made by hand: what is read of each table.

#include "core/error.hpp"
#include "profiler/read/read.hpp"
#include "tests/analyze/nsys_file.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <map>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Nsys : public testing::Test {
 protected:
  std::vector<Timeline> read() { return read_nsys(file.path()); }
  Timeline read_one() {
    std::vector<Timeline> timelines = read();
    EXPECT_THAT(timelines, SizeIs(1));
    return std::move(timelines.at(0));
  }
  NsysFile file{bench::scratch_folder() + "/export.sqlite"};
};

std::string name_of(const Timeline& timeline, const DeviceEvent& event) {
  return timeline.names.at(event.name);
}
std::vector<std::string> names_of(const Timeline& timeline, const std::vector<HostRange>& ranges) {
  std::vector<std::string> names;
  for (const HostRange& range : ranges)
    names.push_back(
        message(timeline.names.at(range.name), ' ', range.time.start_ns, "..", range.time.end_ns));
  return names;
}

TEST_F(Nsys, KernelsCopiesAndSetsKeepTheirNanoseconds) {
  file.create_tables();
  const std::int64_t gemm = file.text("void gemm<float>(int)");
  file.kernel(9007199254740993, 9007199254741000, gemm, 0, 20);  // beyond what a double holds
  file.insert("CUPTI_ACTIVITY_KIND_MEMCPY", 5, 9, 0, 21, 0, global_id(100), 64, 1, "NULL", "NULL");
  file.insert("CUPTI_ACTIVITY_KIND_MEMSET", 7, 18, 0, 22, 0, global_id(100));
  const Timeline timeline = read_one();
  EXPECT_EQ(timeline.format, "Nsight Systems 3.13");
  EXPECT_EQ(timeline.device_name, "GPU zero");
  EXPECT_EQ(timeline.rank, -1);
  EXPECT_EQ(timeline.num_events_read, 3);
  EXPECT_THAT(timeline.warnings, IsEmpty());
  ASSERT_THAT(timeline.events, SizeIs(3));
  EXPECT_EQ(timeline.events[0].work, DeviceWork::copy);
  EXPECT_EQ(name_of(timeline, timeline.events[0]), "Memcpy HtoD");
  EXPECT_EQ(timeline.events[1].work, DeviceWork::set);
  EXPECT_EQ(timeline.events[1].time.end_ns, 18);
  const DeviceEvent& kernel = timeline.events[2];
  EXPECT_EQ(kernel.work, DeviceWork::kernel);
  EXPECT_EQ(kernel.time.start_ns, 9007199254740993);
  EXPECT_EQ(kernel.time.end_ns, 9007199254741000);
  EXPECT_EQ(kernel.stream, 20);
  EXPECT_EQ(kernel.launch_ns, no_time);
  EXPECT_EQ(name_of(timeline, kernel), "void gemm<float>(int)");
}

TEST_F(Nsys, LaunchesAreFoundByProcessAndCorrelation) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  file.kernel(100, 110, gemm, 0, 7, 1, 100).kernel(200, 210, gemm, 1, 7, 1, 101);
  file.kernel(300, 310, gemm, 0, 7, 2, 100);
  file.call(50, 60, 1, 100).call(70, 80, 1, 101).call(90, 91, 9, 100);
  const std::vector<Timeline> timelines = read();
  ASSERT_THAT(timelines, SizeIs(2));
  EXPECT_EQ(timelines[0].events[0].launch_ns, 50);
  EXPECT_EQ(timelines[0].events[1].launch_ns, no_time);
  EXPECT_EQ(timelines[1].events[0].launch_ns, 70);
  EXPECT_EQ(timelines[0].num_events_read, 4);
  EXPECT_EQ(timelines[1].num_events_read, 2);
}

TEST_F(Nsys, NodesOfAGraphShareItsLaunch) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  for (int i = 0; i < 3; ++i)
    file.insert("CUPTI_ACTIVITY_KIND_KERNEL", 100 + 10 * i, 105 + 10 * i, 0, 7, 5, global_id(100),
                gemm, gemm, "NULL", 1000 + i);
  file.call(40, 45, 5);
  for (const DeviceEvent& event : read_one().events) {
    EXPECT_EQ(event.launch_ns, 40);
    EXPECT_TRUE(event.of_graph);
  }
}

TEST_F(Nsys, NodesOfAGraphAreThoseWithANumberOrOfOneLaunch) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  const auto kernel = [&](int start, int correlation, const std::string& node) {
    file.insert("CUPTI_ACTIVITY_KIND_KERNEL", start, start + 5, 0, 7, correlation, global_id(100),
                gemm, gemm, "NULL", node);
  };
  kernel(100, 1, "12");
  kernel(110, 2, "NULL");
  kernel(120, 3, "NULL");
  kernel(130, 3, "NULL");
  std::vector<bool> of_graph;
  for (const DeviceEvent& event : read_one().events) of_graph.push_back(event.of_graph);
  EXPECT_THAT(of_graph, ElementsAre(true, false, true, true));
}

TEST_F(Nsys, StreamsAreThoseOfAProcessAndContext) {
  file.create_tables();
  file.run("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN contextId INTEGER");
  const std::int64_t gemm = file.text("gemm");
  const auto kernel = [&](int start, int process, int context) {
    file.insert("CUPTI_ACTIVITY_KIND_KERNEL", start, start + 5, 0, 7, 0, global_id(process), gemm,
                gemm, "NULL", "NULL", context);
  };
  kernel(100, 100, 1);
  kernel(110, 100, 2);
  kernel(120, 101, 1);
  kernel(130, 100, 1);
  std::vector<std::uint32_t> contexts;
  for (const DeviceEvent& event : read_one().events) contexts.push_back(event.context);
  EXPECT_THAT(contexts, ElementsAre(0, 1, 2, 0));
}

TEST_F(Nsys, GraphsThatWereRecordedAsAWholeCountAndAreReported) {
  file.create_tables();
  file.run(R"(CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER,
    deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
    graphId INTEGER); INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (10, 30, 0, 7, 0, 0, 4))");
  const Timeline timeline = read_one();
  ASSERT_THAT(timeline.events, SizeIs(1));
  EXPECT_EQ(name_of(timeline, timeline.events[0]), "CUDA graph 4");
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("--cuda-graph-trace=node")));
}

TEST_F(Nsys, EveryDeviceIsATimelineWithTheRangesOfItsProcesses) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  file.kernel(100, 110, gemm, 1, 7, 0, 101).kernel(100, 120, gemm, 0, 7, 0, 100);
  file.range(0, 500, "of the first", 100).range(0, 500, "of the second", 101);
  const std::vector<Timeline> timelines = read();
  ASSERT_THAT(timelines, SizeIs(2));
  EXPECT_EQ(timelines[0].rank, 0);
  EXPECT_EQ(timelines[1].rank, 1);
  EXPECT_EQ(timelines[0].device_name, "GPU zero");
  EXPECT_EQ(timelines[1].device_name, "GPU one");
  EXPECT_EQ(timelines[1].events[0].device, 1);
  EXPECT_THAT(names_of(timelines[0], timelines[0].ranges), ElementsAre("of the first 0..500"));
  EXPECT_THAT(names_of(timelines[1], timelines[1].ranges), ElementsAre("of the second 0..500"));
  EXPECT_THAT(timelines[0].warnings, ElementsAre(HasSubstr("2 devices")));
}

TEST_F(Nsys, ProcessesThatShareADeviceAreReported) {
  file.create_tables();
  const std::int64_t gemm = file.text("gemm");
  file.kernel(100, 110, gemm, 0, 7, 0, 100).kernel(200, 210, gemm, 0, 7, 0, 101);
  EXPECT_THAT(read_one().warnings, ElementsAre(HasSubstr("2 processes")));
}

TEST_F(Nsys, CopiesBetweenDevicesAreMarked) {
  file.create_tables();
  const auto copy = [&](int start, int kind, int from, int to) {
    file.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start, start + 5, 0, 7, 0, 0, 64, kind, from, to);
  };
  copy(10, 10, 0, 1);
  copy(20, 8, 0, 1);
  copy(30, 8, 0, 0);
  copy(40, 99, 0, 0);
  const Timeline timeline = read_one();
  std::vector<std::string> found;
  for (const DeviceEvent& event : timeline.events)
    found.push_back(name_of(timeline, event) + (event.between_devices ? " between" : ""));
  EXPECT_THAT(found,
              ElementsAre("Memcpy PtoP between", "Memcpy PtoP between", "Memcpy DtoD", "Memcpy"));
}

TEST_F(Nsys, RangesAreNamedByTextOrByItsNumber) {
  file.create_tables();
  const std::int64_t forward = file.text("forward");
  const auto nvtx = [&](const std::string& start_end, int type, const std::string& text,
                        const std::string& text_id) {
    file.insert("NVTX_EVENTS", start_end, type, text, text_id, global_id(100, 1), 0, "NULL", "NULL",
                "NULL");
  };
  nvtx("10, 90", 59, "NULL", message(forward));
  nvtx("20, 80", 60, "'backward'", "NULL");
  nvtx("5, NULL", 59, "'still open'", "NULL");
  nvtx("6, NULL", 34, "'a mark'", "NULL");
  nvtx("7, 8", 75, "'a domain'", "NULL");
  nvtx("7, 8", 59, "'aten::mm, op_id = 5'", "NULL");
  nvtx("7, 8", 59, "'aten::mm, seq = 5'", "NULL");
  nvtx("7, 8", 59, "NULL", "999");
  nvtx("100, 200", 59, "'ProfilerStep#3'", "NULL");
  nvtx("10, 200", 59, "'whole'", "NULL");
  const Timeline timeline = read_one();
  EXPECT_THAT(names_of(timeline, timeline.ranges),
              ElementsAre("whole 10..200", "forward 10..90", "backward 20..80"));
  EXPECT_THAT(names_of(timeline, timeline.steps), ElementsAre("ProfilerStep#3 100..200"));
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("no GPU work was recorded"),
                                             HasSubstr("1 NVTX range had not ended")));
}

TEST_F(Nsys, TheRankIsInTheEnvironmentOrInTheNameOfTheFile) {
  file.create_tables();
  file.kernel(1, 2, file.text("gemm"));
  file.insert("TARGET_INFO_SYSTEM_ENV", 1, "'Os'", "'DeviceEnvironment'", 7,
              "'LOCAL_RANK=9\nSLURM_PROCID=4\nRANK=3\nWORLD_SIZE=8'");
  EXPECT_EQ(read_one().rank, 3);
  EXPECT_EQ(read_one().world_size, 8);
  file.insert("TARGET_INFO_SYSTEM_ENV", 1, "'Os'", "'OMPI_COMM_WORLD_RANK'", 7, "'5'");
  EXPECT_EQ(read_one().rank, 5);
  const std::string renamed = bench::scratch_folder() + "/node1_rank6.sqlite";
  NsysFile other{renamed};
  other.create_tables().kernel(1, 2, other.text("gemm"));
  other.insert("TARGET_INFO_SYSTEM_ENV", 1, "'Os'", "'PMI_RANK'", 7, "'5'");
  EXPECT_EQ(read_nsys(renamed).at(0).rank, 6);
}

}  // namespace
}  // namespace shardmark
