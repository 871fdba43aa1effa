// Which kernels of a trace are which communication, as the trace itself describes it.

#include "tests/analyze/kineto_traces.hpp"

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr auto all_reduce =
    R"("Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024,
      "Group size": 4, "dtype": "Float", "Process Group Name": "2", "Seq": 17,
      "Process Group Description": "default_pg", "Process Group Ranks": "[0, 2, 4, 6]")";

TEST(ReadKineto, AKernelsOwnMetadataComesFirst) {
  const Timeline timeline = read_trace(trace_of(
      {event("kernel", "any name", "1", "1", all_reduce), event("kernel", "gemm", "3", "1")}));
  ASSERT_NE(timeline.events[0].call, no_index);
  EXPECT_EQ(timeline.events[1].call, no_index);
  const CommunicationCall& call = call_of(timeline, 0);
  EXPECT_EQ(call.kind, "allreduce");
  EXPECT_EQ(call.dtype, "Float");
  EXPECT_EQ(call.elements_in, 1024);
  EXPECT_EQ(call.elements_out, 1024);
  EXPECT_EQ(call.sequence, 17);
  EXPECT_EQ(call.peer, -1);
  const ProcessGroup& group = timeline.groups.at(call.group);
  EXPECT_EQ(group.name, "2");
  EXPECT_EQ(group.description, "default_pg");
  EXPECT_EQ(group.size, 4);
  EXPECT_THAT(group.ranks, ElementsAre(0, 2, 4, 6));
}

TEST(ReadKineto, PeersAndShortenedRanksAreUnderstood) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "ncclSendRecv", "1", "1",
            R"("Collective name": "send", "Rank": 1, "Src Rank": 4, "Dst Rank": 5)"),
      event("kernel", "ncclSendRecv", "2", "1",
            R"("Collective name": "recv", "Rank": 0, "Src Rank": 4, "Dst Rank": 5)"),
      event("kernel", "ncclAllReduce", "3", "1",
            R"("Collective name": "allreduce", "Group size": 3, "Process Group Name": "9",
               "Process Group Ranks": "[1, ..., 5]")"),
      event("cpu_op", "record_param_comms", "0", "1",
            R"("Collective name": "allreduce", "Group size": 3, "Process Group Name": "9",
               "Global rank start": 1, "Global rank stride": 2)"),
  }));
  EXPECT_EQ(call_of(timeline, 0).peer, 5);
  EXPECT_EQ(call_of(timeline, 1).peer, 4);
  EXPECT_EQ(call_of(timeline, 0).group, no_index);
  EXPECT_THAT(timeline.groups.at(call_of(timeline, 2).group).ranks, ElementsAre(1, 3, 5));
}

TEST(ReadKineto, TheHostOperationDescribesAKernelByExternalId) {
  const Timeline timeline = read_trace(trace_of({
      event("cpu_op", "record_param_comms", "1", "5",
            std::string{R"("External id": 30, )"} + all_reduce, 100, 100),
      event("cuda_runtime", "cudaLaunchKernel", "50", "1", R"("correlation": 4)", 100, 100),
      event("kernel", "some_kernel", "60", "5", R"("External id": 30, "correlation": 4)"),
      event("kernel", "other_kernel", "70", "5", R"("External id": 31, "correlation": 5)"),
  }));
  EXPECT_EQ(call_of(timeline, 0).kind, "allreduce");
  EXPECT_EQ(timeline.events[1].call, no_index);
}

// Until 2023 External id was the correlation again; then only the time of the launch tells.
TEST(ReadKineto, TheHostOperationDescribesAKernelByTheTimeOfItsLaunch) {
  const std::string ids = R"("External id": 4, "correlation": 4)";
  const std::vector<std::string> events{
      event("cpu_op", "record_param_comms", "1", "1", R"("External id": 4)", 100, 100),
      event("user_annotation", "nccl:all_gather", "10", "10",
            R"("External id": 9, "Input Dims": [[2, 512], [1]], "Input type": ["float", "int"])",
            100, 100),
      event("user_annotation", "nccl:broadcast", "10", "10", "", 100, 101),
      event("cuda_runtime", "cudaLaunchKernel", "15", "1", ids, 100, 100),
      event("cuda_runtime", "cudaLaunchKernel", "21", "1", R"("correlation": 5)", 100, 100),
      event("kernel", "ncclDevKernel_AllGather_RING_LL", "60", "5", ids),
      event("kernel", "ncclDevKernel_Later", "70", "5", R"("correlation": 5)"),
  };
  const Timeline timeline = read_trace(trace_of(events));
  const CommunicationCall& call = call_of(timeline, 0);
  EXPECT_EQ(call.kind, "all_gather");
  EXPECT_EQ(call.dtype, "float");
  EXPECT_EQ(call.elements_in, 1024);
  EXPECT_EQ(call.elements_out, -1);
  EXPECT_EQ(timeline.events[1].call, no_index);
  EXPECT_THAT(timeline.ranges, SizeIs(2));
}

TEST(ReadKineto, WhatElseIsLaunchedDuringACallIsNotThatCall) {
  const auto launch = [](const std::string& start, const std::string& id) {
    return event("cuda_runtime", "cudaLaunchKernel", start, "1", R"("correlation": )" + id, 100,
                 100);
  };
  const auto kernel = [](const std::string& name, const std::string& start, const std::string& id) {
    return event("kernel", name, start, "1", R"("correlation": )" + id);
  };
  const Timeline timeline = read_trace(trace_of({
      event("user_annotation", "nccl:send 0->1", "10", "10", "", 100, 100),
      launch("11", "1"),
      launch("12", "2"),
      launch("13", "3"),
      kernel("void at::native::copy<int>", "100", "1"),
      kernel("ncclDevKernel_SendRecv", "101", "2"),
      kernel("pack", "102", "3"),
      event("user_annotation", "nccl:all_reduce", "30", "10", "", 100, 100),
      launch("31", "4"),
      launch("32", "5"),
      kernel("void at::native::copy<int>", "103", "4"),
      kernel("multimem_kernel", "104", "5"),
  }));
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < timeline.events.size(); ++i)
    kinds.push_back(timeline.events[i].call == no_index ? "" : call_of(timeline, i).kind);
  EXPECT_THAT(kinds, ElementsAre("", "send", "", "", "all_reduce"));
  EXPECT_EQ(call_of(timeline, 1).peer, 1);
}

TEST(ReadKineto, CallsThatAreDescribedAlikeAreOne) {
  const Timeline timeline =
      read_trace(trace_of({event("kernel", "nccl", "1", "1", R"("Collective name": "barrier")"),
                           event("kernel", "nccl", "3", "1", R"("Collective name": "barrier")"),
                           event("kernel", "nccl", "5", "1", R"("Collective name": "wait")")}));
  EXPECT_THAT(timeline.calls, SizeIs(1));
  EXPECT_EQ(timeline.events[0].call, 0U);
  EXPECT_EQ(timeline.events[1].call, 0U);
  EXPECT_EQ(timeline.events[2].call, no_index);
}

}  // namespace
}  // namespace shardmark
