#include "bench/harness/timeline.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>

#ifdef SHARDMARK_HAVE_ZLIB
#include <zlib.h>
#endif

#include "bench/harness/csv.hpp"

#include "scratch.hpp"

namespace shardmark::bench {
namespace {

using nlohmann::json;

std::string read_archive(const std::string& path) {
#ifdef SHARDMARK_HAVE_ZLIB
  std::string text(1U << 20U, '\0');
  gzFile file = gzopen((path + ".gz").c_str(), "rb");
  if (file == nullptr) return {};
  text.resize(static_cast<std::size_t>(gzread(file, text.data(), 1U << 20U)));
  gzclose(file);
  return text;
#else
  return read_file(path);
#endif
}

RankTrace::Interval interval(const std::string& op, const std::string& path, Lane lane,
                             double start_us, double end_us, std::uint32_t op_seq) {
  RankTrace::Interval made;
  made.name = op + "_kernel";
  made.op = op;
  made.path = path;
  made.dtype = "bf16";
  made.lane = lane;
  made.kind = lane == Lane::tp ? OpKind::communication : OpKind::compute;
  made.op_seq = op_seq;
  made.start_us = start_us;
  made.end_us = end_us;
  made.group = "tp[0,1]";
  made.group_size = 2;
  made.elements = 64;
  return made;
}

Outcome row_of_two_ranks() {
  Outcome row;
  for (int rank = 0; rank < 2; ++rank) {
    RankTrace trace{rank, 100.0, {}};
    trace.intervals.push_back(interval("norm", "step/block0/norm1", Lane::compute, 1, 10, 0));
    trace.intervals.push_back(interval("matmul", "step/block0/mlp/fc1", Lane::compute, 10, 40, 1));
    trace.intervals.push_back(interval("matmul", "step/block0/mlp/fc2", Lane::compute, 41, 60, 2));
    trace.intervals.push_back(
        interval("reduce_scatter", "step/block0/mlp/fc2", Lane::tp, 60, 90.0625, 3));
    row.traces.push_back(std::move(trace));
  }
  return row;
}

json timeline_of_two_rows(const std::string& folder) {
  Timeline timeline{folder, "mpi", 2};
  timeline.add(row_of_two_ranks());
  timeline.add(row_of_two_ranks());
  timeline.finish(true);
  return json::parse(read_archive(folder + "/trace.json"));
}

json events_of(const json& trace, const std::string& category) {
  json events = json::array();
  for (const json& event : trace["traceEvents"])
    if (event.value("cat", "") == category) events.push_back(event);
  return events;
}

TEST(Timeline, HasKinetosFrame) {
  const json trace = timeline_of_two_rows(scratch_folder());
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 2);
  EXPECT_EQ(trace["distributedInfo"]["backend"], "mpi");
  EXPECT_EQ(events_of(trace, "kernel").size(), 16U);
}

TEST(Timeline, CommunicationIsNamedAsNcclsIs) {
  const json trace = timeline_of_two_rows(scratch_folder());
  json found;
  for (const json& event : events_of(trace, "kernel"))
    if (event["name"].get<std::string>().starts_with("nccl")) found = event;
  EXPECT_EQ(found["name"], "ncclDevKernel_ReduceScatter_Sum_bf16 (shardmark mpi)");
  const json& args = found["args"];
  EXPECT_EQ(args["Collective name"], "_reduce_scatter_base");
  EXPECT_EQ(args["In msg nelems"], 64);
  EXPECT_EQ(args["Out msg nelems"], 32);
  EXPECT_EQ(args["Group size"], 2);
  EXPECT_EQ(args["dtype"], "BFloat16");
  EXPECT_EQ(args["Process Group Ranks"], "[0, 1]");
  EXPECT_EQ(args["Seq"], 1) << "row 0 has the first";
  EXPECT_EQ(args["stream"], index_of(Lane::tp));
}

TEST(Timeline, RowsFollowEachOtherAndRanksLineUp) {
  const json trace = timeline_of_two_rows(scratch_folder());
  std::map<std::string, std::vector<double>> steps;
  for (const json& event : events_of(trace, "user_annotation"))
    if (event["name"].get<std::string>().starts_with("ProfilerStep#"))
      steps[event["name"]].push_back(event["ts"]);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps["ProfilerStep#0"], (std::vector<double>{0, 0}));
  EXPECT_EQ(steps["ProfilerStep#1"][0], steps["ProfilerStep#1"][1]);
  EXPECT_GE(steps["ProfilerStep#1"][0], 100.0);
}

TEST(Timeline, EventsOfAThreadNestOrFollow) {
  const json trace = timeline_of_two_rows(scratch_folder());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") {
      const double start = event["ts"];
      EXPECT_GE(event["dur"].get<double>(), 0);
      threads[{event["pid"], event["tid"]}].emplace_back(start, start + event["dur"].get<double>());
    }
  for (const auto& [thread, spans] : threads)
    for (const auto& [a_start, a_end] : spans)
      for (const auto& [b_start, b_end] : spans) {
        const bool crosses = a_start < b_start && b_start < a_end && a_end < b_end;
        EXPECT_FALSE(crosses) << "pid " << thread.first << " tid " << thread.second;
      }
}

TEST(Timeline, EveryKernelHasItsSubmissionAndCorrelationsAreUnique) {
  const json trace = timeline_of_two_rows(scratch_folder());
  std::map<std::int64_t, int> submissions;
  for (const json& event : events_of(trace, "cuda_runtime"))
    ++submissions[event["args"]["correlation"]];
  EXPECT_EQ(submissions.size(), 16U);
  for (const json& event : events_of(trace, "kernel"))
    EXPECT_EQ(submissions[event["args"]["correlation"]], 1);
}

TEST(Timeline, ScopesSpanTheirKernels) {
  const json trace = timeline_of_two_rows(scratch_folder());
  for (const json& event : events_of(trace, "user_annotation")) {
    if (event["name"] != "step/block0/mlp" || event["pid"] != 0 || event["ts"] > 100) continue;
    EXPECT_EQ(event["ts"], 10);
    EXPECT_EQ(event["dur"], 50);
    return;
  }
  FAIL() << "no scope step/block0/mlp";
}

TEST(Timeline, AnInterruptedRunStillParsesAndResumeKeepsTheFirst) {
  const std::string folder = scratch_folder();
  {
    Timeline timeline{folder, "mpi", 2};
    timeline.add(row_of_two_ranks());
    timeline.finish(false);
  }
  EXPECT_EQ(json::parse(read_archive(folder + "/trace.json"))["complete"], false);
  Timeline second{folder, "mpi", 2};
  second.finish(true);
  EXPECT_TRUE(std::filesystem::exists(folder + "/trace-2.json" + TextArchive::suffix()));
}

TEST(TextArchive, IsNotThereUntilItIsWhole) {
  const std::string folder = scratch_folder();
  { TextArchive unfinished{folder + "/a.json"}; }
  EXPECT_FALSE(std::filesystem::exists(folder + "/a.json" + TextArchive::suffix()));
}

}  // namespace
}  // namespace shardmark::bench
