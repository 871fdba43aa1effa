// Runs with the tool of tests/support/nvtx_injection.cpp attached and reads what it was told. The
// process attaches at its first NVTX call, so everything here shares one log.

#include "core/cpu/backend.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "core/record/backend.hpp"
#include "profiler/host_collector.hpp"
#include "profiler/kernel_fanout.hpp"
#include "profiler/range.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace shardmark::test {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Pair;

struct Range {
  int category{0};
  std::uint32_t colour{0};
  double flops{0};
  std::uint64_t bytes{0};
  std::string message;
};

struct NvtxLog {
  std::vector<std::string> domains, schemas;
  std::map<int, std::string> categories;
  std::vector<Range> ranges;
  std::map<std::uint64_t, Range> open;  ///< by range id
  int num_ends_without_start{0};
};

NvtxLog read_log() {
  NvtxLog log;
  std::ifstream file{std::getenv("SHARDMARK_NVTX_LOG")};
  std::string line, word;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    words >> word;
    if (word == "domain") {
      words >> log.domains.emplace_back();
    } else if (word == "category") {
      int number = 0;
      words >> number >> log.categories[number];
    } else if (word == "schema") {
      std::getline(words, log.schemas.emplace_back());
    } else if (word == "start") {
      std::uint64_t id = 0;
      Range range;
      words >> id >> range.category >> range.colour >> range.flops >> range.bytes >> range.message;
      log.ranges.push_back(range);
      log.open[id] = range;
    } else if (word == "end") {
      std::uint64_t id = 0;
      words >> id;
      if (log.open.erase(id) == 0) ++log.num_ends_without_start;
    }
  }
  return log;
}

std::vector<Range> ranges_named(const NvtxLog& log, std::string_view message) {
  std::vector<Range> found;
  for (const Range& range : log.ranges)
    if (range.message == message) found.push_back(range);
  return found;
}

/// Ops of a rank, in submission order, without running them.
struct Program {
  RecordBackend backend;
  OpList list;
  Rank rank{0, Mesh{{.tp = 2}}, backend, &list};
};

TEST(NvtxRanges, CarryPathLaneAndWorkAndMayInterleave) {
  const auto ranges = make_nvtx_ranges();
  ASSERT_NE(ranges, nullptr) << "the injection library was not loaded";
  Program program;
  {
    const auto scope = program.rank.scope("interleaved");
    const Buffer a = program.rank.allocate({4, 8}, DType::f32, Category::activation);
    const Buffer b = program.rank.allocate({8, 16}, DType::f32, Category::weight);
    const Buffer c = program.rank.allocate({4, 16}, DType::f32, Category::activation);
    all_reduce(program.rank, a.tensor(), program.rank.group(Axis::tp), Lane::tp);
    matmul(program.rank, a.tensor(), b.tensor(), c.tensor());
  }
  const OpRecord& reduce = program.list.ops[0];
  const OpRecord& product = program.list.ops[1];
  ranges->on_begin(reduce);
  ranges->on_begin(product);
  ranges->on_end(reduce);
  ranges->on_end(product);

  const NvtxLog log = read_log();
  EXPECT_THAT(log.domains, Contains("shardmark"));
  EXPECT_THAT(log.categories, Contains(Pair(1, "compute")));
  EXPECT_THAT(log.categories, Contains(Pair(2, "tp")));
  const auto reduces = ranges_named(log, "interleaved/all_reduce");
  const auto products = ranges_named(log, "interleaved/matmul");
  ASSERT_EQ(reduces.size(), 1U);
  ASSERT_EQ(products.size(), 1U);
  EXPECT_EQ(reduces[0].category, 2);
  EXPECT_EQ(products[0].category, 1);
  EXPECT_THAT(log.schemas, Contains(" flops:0 bytes:8"));
  EXPECT_EQ(reduces[0].bytes, 4U * 8 * 4);  // 2 (n-1)/n = 1 on two ranks
  EXPECT_EQ(reduces[0].flops, 0);
  EXPECT_EQ(products[0].flops, 2.0 * 4 * 8 * 16);
  EXPECT_EQ(products[0].bytes, 0U);
  EXPECT_NE(reduces[0].colour, products[0].colour);
  EXPECT_THAT(log.open, IsEmpty());
  EXPECT_EQ(log.num_ends_without_start, 0);
}

TEST(NvtxWindow, IsARangeForAsLongAsItLives) {
  {
    const NvtxWindow window{"profiled"};
    EXPECT_EQ(ranges_named(read_log(), "profiled").size(), 1U);
    EXPECT_EQ(read_log().open.size(), 1U);
  }
  EXPECT_THAT(read_log().open, IsEmpty());
}

TEST(NvtxRanges, AreClosedAfterAnError) {
  {
    const auto ranges = make_nvtx_ranges();
    ASSERT_NE(ranges, nullptr);
    Program program;
    const auto scope = program.rank.scope("broken");
    const Buffer x = program.rank.allocate({4}, DType::f32, Category::activation);
    fill(program.rank, x.tensor(), 1);
    ranges->on_begin(program.list.ops[0]);
  }
  EXPECT_THAT(read_log().open, IsEmpty());
}

/// Scope paths live as long as their Rank; the next Rank may put another path at the same address.
TEST(NvtxRanges, MessagesOutliveTheRank) {
  const auto ranges = make_nvtx_ranges();
  ASSERT_NE(ranges, nullptr);
  for (const char* name : {"first", "second"}) {
    Program program;
    const auto scope = program.rank.scope(name);
    const Buffer x = program.rank.allocate({4}, DType::f32, Category::activation);
    fill(program.rank, x.tensor(), 1);
    ranges->on_begin(program.list.ops[0]);
    ranges->on_end(program.list.ops[0]);
  }
  const NvtxLog log = read_log();
  EXPECT_EQ(ranges_named(log, "first/fill").size(), 1U);
  EXPECT_EQ(ranges_named(log, "second/fill").size(), 1U);
}

/// Two ranks on the real executor: every op that runs has one range, on whichever lane.
TEST(NvtxRanges, CoverTheOpsOfTheCpuBackend) {
  run_threads(2, [](Transport& transport) {
    Arena arena{1 << 26};
    Kernels kernels{1, arena};
    CpuBackend backend{transport, arena, kernels};
    const auto ranges = make_nvtx_ranges();
    HostCollector collector;
    KernelFanout sinks{{ranges.get(), &collector}};
    backend.set_kernel_sink(&sinks);
    Rank rank{transport.rank(), Mesh{{.tp = 2}}, backend};
    const Group tp = rank.group(Axis::tp);
    transport.connect(tp, Lane::tp);
    const Buffer x = rank.allocate({64, 64}, DType::f32, Category::activation);
    const Buffer y = rank.allocate({64, 64}, DType::f32, Category::activation);
    const auto scope = rank.scope("executed");
    fill(rank, x.tensor(), 1);
    rank.order(Lane::compute, Lane::tp);
    all_reduce(rank, x.tensor(), tp, Lane::tp);
    fill(rank, y.tensor(), 1);
    rank.order(Lane::tp, Lane::compute);
    add(rank, x.tensor(), y.tensor(), y.tensor());
    rank.synchronize();
    EXPECT_EQ(collector.records().size(), 4U);
  });
  const NvtxLog log = read_log();
  EXPECT_EQ(ranges_named(log, "executed/fill").size(), 4U);
  EXPECT_EQ(ranges_named(log, "executed/all_reduce").size(), 2U);
  EXPECT_EQ(ranges_named(log, "executed/add").size(), 2U);
  EXPECT_THAT(log.open, IsEmpty());
  EXPECT_EQ(log.num_ends_without_start, 0);
}

}  // namespace
}  // namespace shardmark::test
