// Traces of PyTorch's profiler and of shardmark as timelines: what is device work, when, and
// launched by what.

#include "tests/analyze/kineto_traces.hpp"

namespace shardmark {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ReadKineto, TakesDeviceWorkOfOldAndNewCategories) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "k1", "1", "2"),
      event("Kernel", "k2", "3", "2"),
      event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", "5", "2"),
      event("Memcpy", "Memcpy HtoD", "7", "2"),
      event("gpu_memset", "Memset (Device)", "9", "2"),
      event("MEMSET", "Memset (Device)", "11", "2"),
      event("mtia_ccp_events", "dma_request", "13", "2"),
      event("mtia_ccp_events", "fc", "15", "2"),
      event("cpu_op", "aten::mm", "17", "2", R"("stream": 7, "device": 0)"),
      event("cuda_sync", "Context Sync", "17", "2", R"("stream": 7)"),
      event("gpu_user_annotation", "nccl:all_reduce", "17", "2"),
      R"({"ph": "M", "cat": "kernel", "name": "no", "ts": 1, "pid": 0})",
      R"({"ph": "s", "id": 1, "pid": 0, "tid": 7, "ts": 1, "cat": "kernel", "name": "no"})",
  }));
  using enum DeviceWork;
  std::vector<DeviceWork> works;
  std::vector<bool> between;
  for (const DeviceEvent& one : timeline.events) {
    works.push_back(one.work);
    between.push_back(one.between_devices);
  }
  EXPECT_THAT(works, ElementsAre(kernel, kernel, copy, copy, set, set, copy, kernel));
  EXPECT_THAT(between, ElementsAre(false, false, true, false, false, false, false, false));
  EXPECT_EQ(timeline.num_events_read, 13);
  EXPECT_EQ(timeline.format, "Kineto");
  EXPECT_EQ(timeline.cut, "");
  EXPECT_THAT(timeline.warnings, IsEmpty());
}

TEST(ReadKineto, TimesAreWholeNanosecondsOfTheText) {
  const Timeline timeline = read_trace(
      trace_of({event("kernel", "b", "1712195495505583.25", "0.001"),
                event("kernel", "a", "1712195495505583.249", "2e-3"),
                event("kernel", "c", "1712195495505584", "1.0009"),
                R"({"ph": "X", "cat": "kernel", "name": "d", "ts": 1712195495505590})"}));
  ASSERT_THAT(timeline.events, SizeIs(4));
  EXPECT_EQ(name_of(timeline, 0), "a");
  EXPECT_EQ(timeline.events[0].time.start_ns, 1'712'195'495'505'583'249);
  EXPECT_EQ(timeline.events[0].time.end_ns, 1'712'195'495'505'583'251);
  EXPECT_EQ(timeline.events[1].time.start_ns, 1'712'195'495'505'583'250);
  EXPECT_EQ(timeline.events[2].time.end_ns, 1'712'195'495'505'585'000);
  EXPECT_EQ(timeline.events[3].time.end_ns, timeline.events[3].time.start_ns);
  EXPECT_THAT(timeline.warnings, Contains(HasSubstr("1 event with times finer than a nanosecond")));
}

TEST(ReadKineto, AnyLetterMayBeEscaped) {
  const Timeline timeline = read_trace(
      R"({"trace\u0045vents": [
{"ph": "X", "cat": "\u006bernel", "name": "nc\u0063l_x", "ts": 5, "dur": 1},
{"\u0070h": "\u0058", "cat": "gpu_memc\u0070y", "name": "Memcpy P\u0074oP", "ts": 7, "dur": 2},
{"ph": "X", "cat": "user_annotation", "name": "\u0050rofilerStep#3", "ts": 1, "dur": 20},
{"ph": "X", "cat": "cuda_runtime", "name": "cuda\u004caunchKernel", "ts": 2, "dur": 1,
 "args": {"corre\u006cation": 4}},
{"ph": "X", "cat": "kernel", "name": "b", "ts": 10, "dur": 2, "args": {"c\u006frrelation": 4}}],
"distributed\u0049nfo": {"ran\u006b": 3}})");
  ASSERT_THAT(timeline.events, SizeIs(3));
  EXPECT_EQ(name_of(timeline, 0), "nccl_x");
  EXPECT_EQ(timeline.events[1].work, DeviceWork::copy);
  EXPECT_TRUE(timeline.events[1].between_devices);
  EXPECT_EQ(timeline.events[2].launch_ns, 2000);
  EXPECT_THAT(timeline.steps, SizeIs(1));
  EXPECT_EQ(timeline.rank, 3);
  EXPECT_THAT(timeline.faults, IsEmpty());
}

TEST(ReadKineto, StreamsAreThoseOfAProcessAndContext) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "a", "1", "1", R"("device": 0, "stream": 7, "context": 1)"),
      event("kernel", "b", "2", "1", R"("device": 0, "stream": 7, "context": 2)"),
      event("kernel", "c", "3", "1", R"("device": 0, "stream": 7, "context": 1)", 9),
      event("kernel", "d", "4", "1", R"("device": 0, "stream": 7, "context": 1)"),
  }));
  std::vector<std::uint32_t> contexts;
  for (const DeviceEvent& one : timeline.events) contexts.push_back(one.context);
  EXPECT_THAT(contexts, ElementsAre(0, 1, 2, 0));
}

TEST(ReadKineto, StreamsWithoutNumbersAreToldApart) {
  const auto with_thread = [](const std::string& name, const std::string& start,
                              const std::string& thread) {
    return R"({"ph": "X", "cat": "kernel", "name": ")" + name + R"(", "pid": 0, "ts": )" + start +
           R"(, "dur": 5)" + thread + '}';
  };
  const Timeline timeline = read_trace(trace_of(
      {with_thread("a", "1", R"(, "tid": "comm")"), with_thread("b", "2", R"(, "tid": "compute")"),
       with_thread("c", "3", R"(, "tid": "comm")"), with_thread("d", "4", "")}));
  std::vector<std::int32_t> streams;
  for (const DeviceEvent& one : timeline.events) streams.push_back(one.stream);
  EXPECT_THAT(streams, ElementsAre(-2, -3, -2, -1));
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("1 event starts before the one ahead")));
}

TEST(ReadKineto, NodesOfAGraphAreMarked) {
  const Timeline timeline = read_trace(trace_of({
      event("cuda_runtime", "hipGraphLaunch", "1", "1", R"("correlation": 5)", 100),
      event("cuda_runtime", "cudaLaunchKernel", "2", "1", R"("correlation": 6)", 100),
      event("kernel", "by its id", "3", "1", R"("graph id": 2, "graph node id": 9)"),
      event("kernel", "of none", "4", "1", R"("graph id": 0, "graph node id": 0)"),
      event("kernel", "first of a launch", "5", "1", R"("correlation": 5)"),
      event("kernel", "alone", "6", "1", R"("correlation": 6)"),
      event("kernel", "second of a launch", "7", "1", R"("correlation": 5)"),
  }));
  std::vector<bool> of_graph;
  for (const DeviceEvent& one : timeline.events) of_graph.push_back(one.of_graph);
  EXPECT_THAT(of_graph, ElementsAre(true, false, true, false, true));
}

TEST(ReadKineto, SeveralDevicesInOneFileAreReported) {
  const Timeline timeline =
      read_trace(trace_of({event("kernel", "a", "10", "10", R"("device": 0)"),
                           event("kernel", "b", "10", "20", R"("device": 1)", 1)}));
  EXPECT_THAT(timeline.warnings,
              ElementsAre(HasSubstr("the work of 2 devices is taken for that of one rank")));
}

TEST(ReadKineto, PlacesAreNumbersOrTexts) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "a", "1", "1", R"("device": 3, "stream": 20)"),
      event("kernel", "b", "2", "1", "", 4, 21),
      R"({"ph": "X", "cat": "Kernel", "name": "c", "pid": "2", "tid": "stream 9", "ts": 3})",
      event("gpu_memcpy", "Memcpy PtoP", "4", "1",
            R"("fromDevice": 0, "inDevice": 5, "toDevice": 1, "stream": 8)"),
  }));
  std::vector<std::pair<int, int>> places;
  for (const DeviceEvent& one : timeline.events) places.emplace_back(one.device, one.stream);
  EXPECT_THAT(places,
              ElementsAre(std::pair{3, 20}, std::pair{4, 21}, std::pair{2, 9}, std::pair{5, 8}));
}

TEST(ReadKineto, LaunchesAreFoundByCorrelationWhereverTheyStand) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "a", "10", "1", R"("correlation": 18446744073709551615000, "x": 1)"),
      event("kernel", "b", "20", "1", R"("correlation": 7)"),
      event("gpu_memcpy", "Memcpy HtoD", "30", "1", R"("correlation": 8)"),
      event("kernel", "c", "40", "1", R"("correlation": 9)"),
      event("kernel", "d", "50", "1", R"("correlation": 10)"),
      event("cuda_runtime", "cudaLaunchKernel", "15", "1", R"("correlation": 7)", 100),
      event("Runtime", "cudaMemcpyAsync", "25.5", "1", R"("correlation": 8)", 100),
      event("cuda_runtime", "hipModuleLaunchKernel", "45", "1", R"("correlation": 9)", 100),
      event("cuda_runtime", "cudaEventQuery", "1", "1", R"("correlation": 10)", 100),
  }));
  std::vector<std::int64_t> launches;
  for (const DeviceEvent& one : timeline.events) launches.push_back(one.launch_ns);
  EXPECT_THAT(launches, ElementsAre(no_time, 15'000, 25'500, 45'000, no_time));
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("1 event starts before its launch")));
}

TEST(ReadKineto, StepsAndRangesAreThoseOfTheHost) {
  const Timeline timeline = read_trace(trace_of({
      event("user_annotation", "ProfilerStep#2", "50", "40"),
      event("cpu_op", "ProfilerStep#1", "10", "40"),
      event("Operator", "ProfilerStep#0", "1", "9"),
      event("gpu_user_annotation", "ProfilerStep#1", "12", "40"),
      event("user_annotation", "forward", "11", "5"),
      event("cpu_op", "aten::mm", "11", "5"),
      event("user_annotation", "ProfilerStep#2", "51", "40"),
  }));
  std::vector<std::string> steps;
  for (const HostRange& step : timeline.steps)
    steps.push_back(
        message(timeline.names[step.name], ' ', step.time.start_ns, ' ', step.time.end_ns));
  EXPECT_THAT(steps, ElementsAre("ProfilerStep#0 1000 10000", "ProfilerStep#1 10000 50000",
                                 "ProfilerStep#2 51000 91000"));
  ASSERT_THAT(timeline.ranges, SizeIs(1));
  EXPECT_EQ(timeline.names[timeline.ranges[0].name], "forward");
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("1 step with the name of a later one")));
}

TEST(ReadKineto, ReadsRankWorldDeviceAndGroupsBeforeOrBehindTheEvents) {
  const std::string info =
      R"("distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1,
        "pg_config": [{"pg_name": "5", "pg_desc": "tp", "pg_size": 2, "ranks": [2, 3]}]})";
  const std::string device =
      R"("deviceProperties": [{"id": 0, "name": "no"}, {"id": 1, "name": "H100"}],)";
  const std::string kernel = event("kernel", "k", "1", "1", R"("device": 1)");
  const std::string events = "\"traceEvents\": [" + kernel + "]";
  for (const std::string& text :
       {'{' + device + info + ',' + events + '}', '{' + device + events + ',' + info + '}'}) {
    const Timeline timeline = read_trace(text);
    EXPECT_EQ(timeline.rank, 3);
    EXPECT_EQ(timeline.world_size, 8);
    EXPECT_EQ(timeline.device_name, "H100");
    ASSERT_THAT(timeline.groups, SizeIs(1));
    EXPECT_EQ(timeline.groups[0].name, "5");
    EXPECT_EQ(timeline.groups[0].description, "tp");
    EXPECT_EQ(timeline.groups[0].size, 2);
    EXPECT_THAT(timeline.groups[0].ranks, ElementsAre(2, 3));
  }
}

TEST(ReadKineto, TheFileNameGivesTheRankThatTheFileDoesNot) {
  const std::string text = trace_of({event("kernel", "k", "1", "1")});
  for (const auto& [name, rank] :
       std::vector<std::pair<std::string, int>>{{"trace_rank0.json", 0},
                                                {"rank-3_x.json", 3},
                                                {"worker2.pt.trace.json", 2},
                                                {"trace_4.json", 4},
                                                {"host_1234.1700000000000.pt.trace.json", -1},
                                                {"t.json", -1}})
    EXPECT_EQ(read_kineto(write_trace(text, name)).at(0).rank, rank) << name;
}

TEST(ReadKineto, ATraceOfShardmarkIsOneTimelinePerRank) {
  const std::string tp = R"("Process Group Name": "tp[0,1]", "Process Group Ranks": "[0, 1]",)";
  std::vector<std::string> events;
  for (const int rank : {1, 0}) {
    const std::string base = std::to_string(10 * rank + 1);
    events.push_back(event("user_annotation", "ProfilerStep#0", "0", "100", "", rank, 10));
    events.push_back(event("user_annotation", "row 0: tp 2, seq 4", "0", "100", "", rank, 10));
    events.push_back(
        event("cuda_runtime", "submit", "0", "0", R"("correlation": )" + base, rank, 11));
    events.push_back(
        event("kernel", message("matmul ", rank), "5", "20",
              message(R"("stream": 0, "device": )", rank, R"(, "correlation": )", base), rank, 0));
    events.push_back(event("kernel", "ncclDevKernel_AllReduce_Sum_f32", "30", "4",
                           message(R"("stream": 1, "device": )", rank, ", ", tp,
                                   R"("Collective name": "allreduce", "Group size": 2)"),
                           rank, 1));
  }
  const std::vector<Timeline> timelines = read_kineto(
      write_trace(trace_of(events, R"("distributedInfo": {"rank": 0, "world_size": 2},)")));
  ASSERT_THAT(timelines, SizeIs(2));
  for (const int rank : {0, 1}) {
    const Timeline& timeline = timelines[static_cast<std::size_t>(rank)];
    SCOPED_TRACE(rank);
    EXPECT_EQ(timeline.format, "shardmark");
    EXPECT_EQ(timeline.rank, rank);
    EXPECT_EQ(timeline.world_size, 2);
    EXPECT_THAT(timeline.steps, SizeIs(1));
    EXPECT_THAT(timeline.ranges, SizeIs(1));
    ASSERT_THAT(timeline.events, SizeIs(2));
    EXPECT_EQ(name_of(timeline, 0), message("matmul ", rank));
    EXPECT_EQ(timeline.events[0].launch_ns, 0);
    EXPECT_EQ(timeline.events[0].device, rank);
    EXPECT_EQ(call_of(timeline, 1).kind, "allreduce");
    EXPECT_THAT(timeline.groups.at(call_of(timeline, 1).group).ranks, ElementsAre(0, 1));
  }
}

TEST(ReadKineto, EmptyAndBareTracesAreTraces) {
  EXPECT_THAT(read_trace("[]").events, IsEmpty());
  EXPECT_THAT(read_trace(trace_of({})).events, IsEmpty());
  EXPECT_THAT(read_trace("\xef\xbb\xbf[" + event("kernel", "k", "1", "1") + "]").events, SizeIs(1));
  const Timeline tail = read_trace("[]x");
  EXPECT_THAT(tail.warnings, ElementsAre(HasSubstr("from byte 2 on was not read")));
}

}  // namespace
}  // namespace shardmark
