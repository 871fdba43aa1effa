// The trace of all ranks: what viewers need of it, and that our own reader gets the same figures.

#include "bench/analyze/merged_trace.hpp"

#include "bench/analyze/tops.hpp"
#include "bench/harness/text_archive.hpp"
#include "core/error.hpp"
#include "profiler/read/find.hpp"
#include "profiler/read/read.hpp"
#include "tests/analyze/hand_made.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>

namespace shardmark::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using Recorded = shardmark::Timeline;

/// Compute, communication in two groups, copies, sets, a step and ranges; times that a double of
/// microseconds does not hold.
Recorded of_rank(int rank) {
  const std::int64_t base = 1'700'000'000'123'456'789 + rank;
  Recorded timeline =
      HandMade{}
          .kernel("gemm<\"quoted\", \xc3\xa4>", base + 1, base + 1002, 7, base - 300)
          .kernel("gemm", base + 500, base + 1500, 9, base - 300)
          .kernel("ncclDevKernel_AllReduce_Sum_bf16", base + 900, base + 2003, 20)
          .call("allreduce")
          .kernel("my_exchange", base + 3000, base + 3100, 21, base + 2600)
          .call("send")
          .copy(base + 50, base + 2500)
          .peer_copy(base + 3050, base + 3300)
          .kernel("empty", base + 3400, base + 3400)
          .kernel("backwards", base + 3600, base + 3500)
          .step("ProfilerStep#7", base - 100, base + 3000)
          .made();
  timeline.rank = rank;
  timeline.file = message("rank", rank, ".json");
  timeline.world_size = 2;
  timeline.device_name = message("GPU \"", rank, '"');
  timeline.names.push_back("forward");
  const auto forward = static_cast<std::uint32_t>(timeline.names.size() - 1);
  timeline.ranges = {{{base, base + 2000}, forward}, {{base + 1000, base + 2500}, forward}};
  ProcessGroup group;
  group.name = "1";
  group.description = "TENSOR_PARALLEL_GROUP";
  group.ranks = {2 * rank, 2 * rank + 1};
  group.size = 2;
  timeline.groups = {group};
  timeline.calls[0].group = 0;
  timeline.calls[0].dtype = "BFloat16";
  timeline.calls[0].elements_in = timeline.calls[0].elements_out = 4096;
  timeline.calls[0].sequence = 12;
  timeline.calls[1].peer = 1;
  return timeline;
}

class MergedTrace : public testing::Test {
 protected:
  Recording written(const std::vector<std::int64_t>& offset_ns = {}) {
    Recording recording = make_recording({of_rank(0), of_rank(1)}, CommRule::automatic, {}, {});
    write_merged_trace(recording, offset_ns, folder + "/merged.json");
    return recording;
  }
  [[nodiscard]] std::string path() const { return folder + "/merged.json" + TextArchive::suffix(); }
  [[nodiscard]] nlohmann::json events() const {
    return nlohmann::json::parse(head_of(path(), 1 << 20)).at("traceEvents");
  }
  std::string folder{scratch_folder()};
};

std::vector<std::int64_t> figures_of(const Account& a) {
  return {a.num_kernels,     a.num_comm,     a.num_copies,      a.num_zero,
          a.num_negative,    a.span_ns,      a.busy_ns,         a.idle_ns,
          a.compute_ns,      a.comm_ns,      a.copy_ns,         a.overlapped_ns,
          a.exposed_comm_ns, a.three_way_ns, a.exposed_copy_ns, a.span.start_ns};
}

TEST_F(MergedTrace, ReadsBackToTheSameFigures) {
  const Recording before = written();
  const Recording after = make_recording(read_recording(path()), CommRule::automatic, {}, {});
  ASSERT_THAT(after.ranks, SizeIs(2));
  EXPECT_EQ(after.world_size, before.world_size);
  // The first thing on any rank is at 0.
  const std::int64_t begin_ns = of_rank(0).events[0].launch_ns;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Recorded& old = before.ranks[rank].timeline;
    const Recorded& back = after.ranks[rank].timeline;
    EXPECT_EQ(back.rank, old.rank);
    EXPECT_EQ(back.format, "shardmark");
    EXPECT_EQ(back.device_name, old.device_name);
    EXPECT_EQ(after.ranks[rank].classes, before.ranks[rank].classes);
    ASSERT_THAT(back.events, SizeIs(old.events.size()));
    for (std::size_t i = 0; i < old.events.size(); ++i) {
      EXPECT_EQ(back.events[i].time.start_ns, old.events[i].time.start_ns - begin_ns) << i;
      EXPECT_EQ(back.events[i].time.end_ns, old.events[i].time.end_ns - begin_ns) << i;
      EXPECT_EQ(back.names.at(back.events[i].name), old.names.at(old.events[i].name));
      EXPECT_EQ(back.events[i].stream, old.events[i].stream);
      const std::int64_t launch_ns = old.events[i].launch_ns;
      EXPECT_EQ(back.events[i].launch_ns, launch_ns == no_time ? no_time : launch_ns - begin_ns);
      EXPECT_EQ(back.events[i].between_devices, old.events[i].between_devices);
    }
    const IdleSplit old_idle = split_idle(before.ranks[rank], std::nullopt);
    const IdleSplit idle = split_idle(after.ranks[rank], std::nullopt);
    EXPECT_GT(idle.host_bound_ns, 0);
    EXPECT_EQ(idle.host_bound_ns, old_idle.host_bound_ns);
    EXPECT_EQ(idle.waiting_ns, old_idle.waiting_ns);
    EXPECT_EQ(idle.unknown_ns, old_idle.unknown_ns);
    const auto old_windows = windows_of(old), windows = windows_of(back);
    ASSERT_EQ(windows.size(), old_windows.size());
    for (std::size_t i = 0; i < windows.size(); ++i) {
      EXPECT_EQ(windows[i].name, old_windows[i].name);
      auto expected = account(old, before.ranks[rank].classes, old_windows[i]).value();
      expected.span.start_ns -= begin_ns;
      EXPECT_EQ(figures_of(account(back, after.ranks[rank].classes, windows[i]).value()),
                figures_of(expected))
          << "rank " << rank << ", " << windows[i].name;
    }
  }
}

TEST_F(MergedTrace, CallsKeepTheirMetadata) {
  written();
  const std::vector<Recorded> timelines = read_recording(path());
  ASSERT_THAT(timelines, SizeIs(2));
  std::vector<std::string> found;
  for (const Recorded& timeline : timelines)
    for (const DeviceEvent& event : timeline.events) {
      if (event.call == no_index) continue;
      const CommunicationCall& call = timeline.calls.at(event.call);
      std::string text = message(call.kind, ' ', call.dtype, ' ', call.elements_in, '>',
                                 call.elements_out, ' ', call.sequence, ' ', call.peer);
      if (call.group != no_index)
        text += message(' ', timeline.groups.at(call.group).description, ' ',
                        timeline.groups.at(call.group).ranks.at(0));
      found.push_back(text);
    }
  // Both groups are called "1"; that of the second rank keeps its own members.
  EXPECT_THAT(found, ElementsAre("allreduce BFloat16 4096>4096 12 -1 TENSOR_PARALLEL_GROUP 0",
                                 "send  -1>-1 -1 1",
                                 "allreduce BFloat16 4096>4096 12 -1 TENSOR_PARALLEL_GROUP 2",
                                 "send  -1>-1 -1 1"));
}

TEST_F(MergedTrace, OffsetsAlignTheRanks) {
  written({0, -1});
  const std::vector<Recorded> timelines = read_recording(path());
  ASSERT_THAT(timelines, SizeIs(2));
  EXPECT_EQ(timelines[0].events.at(0).time.start_ns, timelines[1].events.at(0).time.start_ns);
}

TEST_F(MergedTrace, EveryRankHasNamedThreads) {
  written();
  std::map<int, std::set<std::string>> threads;
  std::set<std::string> processes;
  for (const nlohmann::json& event : events())
    if (event.at("name") == "thread_name")
      threads[event.at("pid").get<int>()].insert(event.at("args").at("name").get<std::string>());
    else if (event.at("name") == "process_name")
      processes.insert(event.at("args").at("name").get<std::string>());
  EXPECT_THAT(processes, ElementsAre("rank 0", "rank 1"));
  const auto expected =
      UnorderedElementsAre("recording", "steps", "ranges", "ranges (2)", "launches", "compute",
                           "compute (2)", "tp communication", "communication, stream 21", "copies");
  EXPECT_THAT(threads[0], expected);
  EXPECT_THAT(threads[1], expected);
}

TEST_F(MergedTrace, EventsOfAThreadNeverOverlap) {
  written();
  struct Open {
    double end_us;
    bool may_nest;
  };
  std::map<std::pair<int, int>, std::vector<Open>> open;
  for (const nlohmann::json& event : events()) {
    if (event.at("ph") != "X") continue;
    auto& ends = open[{event.at("pid").get<int>(), event.at("tid").get<int>()}];
    const auto start_us = event.at("ts").get<double>();
    const double end_us = start_us + event.at("dur").get<double>();
    while (!ends.empty() && ends.back().end_us <= start_us + 1e-6) ends.pop_back();
    if (!ends.empty()) {
      EXPECT_TRUE(ends.back().may_nest) << event.dump();
      EXPECT_LE(end_us, ends.back().end_us + 1e-6) << event.dump();
    }
    ends.push_back({end_us, event.at("cat") == "user_annotation"});
  }
}

TEST_F(MergedTrace, TheSuffixIsNotDoubled) {
  const Recording recording = make_recording({of_rank(0)}, CommRule::automatic, {}, {});
  write_merged_trace(recording, {}, folder + "/a.json" + TextArchive::suffix());
  EXPECT_THAT(read_recording(folder + "/a.json" + TextArchive::suffix()), SizeIs(1));
  EXPECT_THROW(write_merged_trace(recording, {}, folder + "/missing/a.json"), InputError);
}

TEST_F(MergedTrace, RanksWithoutEventsAreWrittenToo) {
  Recorded empty;
  empty.rank = 1;
  const Recording recording = make_recording({of_rank(0), empty}, CommRule::automatic, {}, {});
  write_merged_trace(recording, {}, folder + "/merged.json");
  EXPECT_THAT(events().dump(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace shardmark::bench
