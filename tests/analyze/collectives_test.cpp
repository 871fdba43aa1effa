#include "bench/analyze/collectives.hpp"

#include "tests/analyze/collectives_recording.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace shardmark::bench {
namespace {

using AxisOf = std::map<std::string, std::string>;

ProcessGroup described(const std::string& description) { return {"7", description, {}, 0}; }

TEST(Purpose, IsReadFromTheWordsOfFrameworks) {
  const std::pair<const char*, const char*> cases[] = {
      {"TENSOR_MODEL_PARALLEL_GROUP", "tp"},
      {"PIPELINE_MODEL_PARALLEL_GROUP", "pp"},
      {"DATA_PARALLEL_GROUP", "dp"},
      {"DATA_PARALLEL_GROUP_WITH_CP", "dp"},
      {"CONTEXT_PARALLEL_GROUP", "cp"},
      {"EXPERT_MODEL_PARALLEL_GROUP", "ep"},
      {"EXPERT_TENSOR_PARALLEL_GROUP", "tp"},
      {"EXPERT_DATA_PARALLEL_GROUP", "dp"},
      {"TENSOR_AND_CONTEXT_PARALLEL_GROUP", "?"},
      {"MODEL_PARALLEL_GROUP", "?"},
      {"mesh_tp", "tp"},
      {"mesh_dp_shard_cp", "dp"},
      {"mesh_pp", "pp"},
      {"FSDP", "dp"},
      {"moe_ep", "ep"},
      {"default_pg", "dp"},
      {"undefined", "?"},
      {"", "?"},
  };
  for (const auto& [description, purpose] : cases)
    EXPECT_EQ(purpose_of(described(description), 8, {}), purpose) << description;
  EXPECT_EQ(purpose_of({"cp[0,1]", "", {0, 1}, 2}, 8, {}), "cp");
}

TEST(Purpose, OfTheCommandLineComesFirst) {
  const AxisOf axis_of{{"7", "ep"}, {"mesh_dp", "cp"}};
  EXPECT_EQ(purpose_of({"7", "mesh_tp", {}, 0}, 8, axis_of), "ep");
  EXPECT_EQ(purpose_of({"8", "mesh_dp", {}, 0}, 8, axis_of), "cp");
  EXPECT_EQ(purpose_of({"8", "mesh_tp", {}, 0}, 8, axis_of), "tp");
}

TEST(Purpose, FromTheDistanceOfRanksSaysNoMoreThanItTells) {
  const auto of_ranks = [](std::vector<int> ranks, std::string_view kind = {}) {
    return purpose_of({"7", "undefined", std::move(ranks), 0}, 6, {}, kind);
  };
  EXPECT_EQ(of_ranks({0, 1, 2}), "tp");
  EXPECT_EQ(of_ranks({0, 3}), "dp");
  EXPECT_EQ(of_ranks({0, 3}, "send_recv"), "pp");
  EXPECT_EQ(of_ranks({0, 1, 2}, "send_recv"), "?");
  EXPECT_EQ(of_ranks({0, 1, 2, 3, 4, 5}), "?");
  EXPECT_EQ(of_ranks({0, 1, 3}), "?");
  EXPECT_EQ(of_ranks({2, 2, 2}), "?");
  EXPECT_EQ(of_ranks({4}), "?");
  EXPECT_EQ(of_ranks({}), "?");
}

TEST(Label, IsNameOrDescriptionOrRanks) {
  EXPECT_EQ(label_of({"7", "mesh_tp", {0, 1}, 2}), "7");
  EXPECT_EQ(label_of({"", "mesh_tp", {0, 1}, 2}), "mesh_tp");
  EXPECT_EQ(label_of({"", "", {0, 1, 2}, 3}), "[0,1,2]");
  EXPECT_EQ(label_of({"", "", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10}), "[0,1,2,3,4,5,6,7,...,9]");
  EXPECT_EQ(label_of({}), "");
}

TEST(Bytes, AreTheLargerBufferOfTheCall) {
  const auto bytes = [](const char* kind, std::int64_t in, std::int64_t out, int size) {
    return bytes_of_call({"", "BFloat16", no_index, in, out, -1, -1}, kind, size);
  };
  EXPECT_EQ(bytes("all_reduce", 100, 100, 3), 200);
  EXPECT_EQ(bytes("all_gather", 100, 300, 3), 600);
  EXPECT_EQ(bytes("all_gather", 100, -1, 3), 600);
  EXPECT_EQ(bytes("reduce_scatter", 300, 100, 3), 600);
  EXPECT_EQ(bytes("reduce_scatter", -1, 100, 3), 600);
  EXPECT_EQ(bytes("all_to_all", 300, 300, 3), 600);
  EXPECT_EQ(bytes("all_to_all_v", 120, 340, 3), 680);
  EXPECT_EQ(bytes("gather", 100, 0, 3), 600) << "not the root";
  EXPECT_EQ(bytes("scatter", 0, 100, 3), 600) << "not the root";
  EXPECT_EQ(bytes("send_recv", 100, 0, 2), 200);
  EXPECT_EQ(bytes("all_gather", 100, -1, 0), -1) << "group size not known";
  EXPECT_EQ(bytes("all_reduce", -1, -1, 3), -1);
  EXPECT_EQ(bytes("barrier", 1, 1, 3), -1);
  EXPECT_EQ(bytes("all_reduce", std::numeric_limits<std::int64_t>::max(), 1, 3), -1);
  EXPECT_EQ(bytes_of_call({"", "Mystery", no_index, 1, 1, -1, -1}, "all_reduce", 3), -1);
}

TEST(Bytes, OfEachTypeOfPyTorch) {
  EXPECT_EQ(bytes_of_dtype("Float8_e4m3fn"), 1);
  EXPECT_EQ(bytes_of_dtype("Bool"), 1);
  EXPECT_EQ(bytes_of_dtype("Half"), 2);
  EXPECT_EQ(bytes_of_dtype("Float"), 4);
  EXPECT_EQ(bytes_of_dtype("Long"), 8);
  EXPECT_EQ(bytes_of_dtype("ComplexDouble"), 16);
  EXPECT_EQ(bytes_of_dtype("float"), 4);
  EXPECT_EQ(bytes_of_dtype("c10::BFloat16"), 2);
  EXPECT_EQ(bytes_of_dtype("unsigned char"), 1);
  EXPECT_EQ(bytes_of_dtype(""), 0);
}

// 4800 bytes in 3 us are 1.6 GB/s; of three ranks an all-reduce moves 2 * 2/3 of it per link.
TEST(Bandwidth, HasTheFactorOfTheGroup) {
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 3, 4800, 3).algbw_GBps, 1.6);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 3, 4800, 3).busbw_GBps, 1.6 * 4 / 3);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_gather", 3, 4800, 3).busbw_GBps, 1.6 * 2 / 3);
  EXPECT_DOUBLE_EQ(bandwidth_of("send_recv", 3, 4800, 3).busbw_GBps, 1.6);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 1, 4800, 3).busbw_GBps, 0);
  EXPECT_DOUBLE_EQ(bandwidth_of("?", 3, 4800, 3).busbw_GBps, 0);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 3, 4800, 0).algbw_GBps, 0);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 3, -1, 3).algbw_GBps, 0);
}

// Two sizes of all-reduce on rank 1 of three; compute covers 1000 to 2500 and 2500 to 3500.
Recording three_ranks() {
  RankBuilder rank{1};
  rank.compute(1000, 2500).compute(2000, 3500);
  rank.group("tp", {0, 1, 2}).call("allreduce", 1200, 0, 2000).call("allreduce", 1200, 3000, 7000);
  rank.call("allreduce", 1200, 9000, 12000).call("allreduce", 30, 3600, 3700);
  rank.nccl("ncclDevKernel_SendRecv(args)", 3400, 3400).nccl("mystery", 20000, 19000);
  return recording_of({RankBuilder{0}, rank, RankBuilder{2}});
}

TEST(CollectiveRows, GroupCallsBySizeWithExactTimes) {
  const auto rows = collective_rows(three_ranks(), whole_trace, {});
  ASSERT_EQ(rows.size(), 3U);
  const CollectiveRow& large = rows[0];
  EXPECT_EQ(large.rank, 1);
  EXPECT_EQ(large.kind, "all_reduce");
  EXPECT_EQ(large.group, "tp");
  EXPECT_EQ(large.purpose, "tp");
  EXPECT_EQ(large.group_size, 3);
  EXPECT_EQ(large.dtype, "Float");
  EXPECT_EQ(large.bytes, 4800);
  EXPECT_EQ(large.count, 3);
  EXPECT_DOUBLE_EQ(large.total_us, 9);
  EXPECT_DOUBLE_EQ(large.min_us, 2);
  EXPECT_DOUBLE_EQ(large.p50_us, 3);
  EXPECT_DOUBLE_EQ(large.p95_us, 3.9);
  EXPECT_DOUBLE_EQ(large.max_us, 4);
  // 0 to 1000, 3500 to 7000, 9000 to 12000.
  EXPECT_DOUBLE_EQ(large.exposed_us, 7.5);
  EXPECT_DOUBLE_EQ(large.algbw_GBps, 1.6);
  EXPECT_EQ(large.kernel, "ncclDevKernel_allreduce");
  EXPECT_EQ(rows[1].bytes, 120);
  EXPECT_DOUBLE_EQ(rows[1].exposed_us, 0.1);
  EXPECT_EQ(rows[2].kind, "send_recv") << "by its name";
  EXPECT_EQ(rows[2].group, "");
  EXPECT_EQ(rows[2].purpose, "");
  EXPECT_EQ(rows[2].bytes, -1);
  EXPECT_DOUBLE_EQ(rows[2].total_us, 0) << "without a length, and one that ends before it starts";
  EXPECT_EQ(rows[2].count, 1);
}

TEST(CollectiveRows, OfAWindowAreWhatLiesInIt) {
  const auto rows = collective_rows(three_ranks(), {"window", Span{1500, 6000}}, {});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].count, 2) << "of which one began before, and one ends after it";
  EXPECT_DOUBLE_EQ(rows[0].total_us, 0.5 + 3);
  EXPECT_DOUBLE_EQ(rows[0].exposed_us, 2.5) << "3500 to 6000";
  EXPECT_DOUBLE_EQ(rows[0].min_us, 2) << "whole";
  EXPECT_DOUBLE_EQ(rows[0].max_us, 4) << "whole";
  EXPECT_TRUE(collective_rows(three_ranks(), {"window", Span{50000, 60000}}, {}).empty());
}

TEST(CollectiveRows, CallsAtTheSameTimeAreExposedOnce) {
  RankBuilder rank{0};
  rank.compute(0, 1000).group("tp", {0, 1}).all_reduce(500, 3000).all_reduce(500, 2500);
  const auto rows = collective_rows(recording_of({rank}), whole_trace, {});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].total_us, 4.5);
  EXPECT_DOUBLE_EQ(rows[0].exposed_us, 2);
}

TEST(CollectiveRows, OfAllToAllSayWhetherSizesDiffer) {
  RankBuilder rank{0};
  rank.group("ep", {0, 1, 2}).call("all_to_all", 3, 0, 9).call("all_to_allv", 3, 10, 12);
  const auto rows = collective_rows(recording_of({rank}), whole_trace, {});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].kind, "all_to_all");
  EXPECT_EQ(rows[1].kind, "all_to_all_v");
}

TEST(CollectiveRows, OfNothingAreNone) {
  EXPECT_TRUE(collective_rows({}, whole_trace, {}).empty());
  EXPECT_TRUE(collective_rows(recording_of({RankBuilder{0}}), whole_trace, {}).empty());
}

}  // namespace
}  // namespace shardmark::bench
