#include "profiler/host_collector.hpp"
#include "profiler/kernel_fanout.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {
namespace {

struct Counter final : KernelSink {
  void on_begin(const OpRecord&) override { ++begins; }
  void on_end(const OpRecord&) override { ++ends; }
  int begins{0}, ends{0};
};

TEST(HostCollector, KeepsRecordsUntilCleared) {
  HostCollector collector{1};
  for (std::uint32_t seq = 0; seq < 3; ++seq)
    collector.on_kernel({seq, Lane::tp, OpKind::communication, "all_reduce", 10, 20});
  ASSERT_EQ(collector.records().size(), 3U);
  EXPECT_EQ(collector.records()[2].op_seq, 2U);
  EXPECT_EQ(collector.records()[2].end_ns, 20);
  collector.clear();
  EXPECT_THAT(collector.records(), testing::IsEmpty());
}

TEST(KernelFanout, TellsEveryoneAndSkipsNull) {
  Counter counter;
  HostCollector first, second;
  KernelFanout fanout{{&counter, nullptr, &first, &second}};
  const std::string path = "step";
  const OpRecord record{0, Lane::compute, &path, Fill{}};
  fanout.on_begin(record);
  fanout.on_kernel({});
  fanout.on_end(record);
  EXPECT_EQ(counter.begins, 1);
  EXPECT_EQ(counter.ends, 1);
  EXPECT_EQ(first.records().size(), 1U);
  EXPECT_EQ(second.records().size(), 1U);
}

}  // namespace
}  // namespace shardmark::test
