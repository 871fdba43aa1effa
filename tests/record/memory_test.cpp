#include "core/record/memory.hpp"

#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

#include <optional>

namespace shardmark::test {
namespace {

TEST(Memory, PeakIsSplitByCategoryAtItsMoment) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) {
                            const Buffer w = rank.allocate({10}, DType::f32, Category::weight);
                            std::optional<Buffer> x;
                            x = rank.allocate({30}, DType::bf16, Category::activation);
                            fill(rank, w.tensor(), 1);
                            const Buffer g = rank.allocate({5}, DType::f32, Category::gradient);
                            x.reset();
                            const Buffer y = rank.allocate({7}, DType::f32, Category::activation);
                          }};
  const MemoryTimeline timeline = memory_timeline(recorded.list(0).memory);
  EXPECT_EQ(timeline.points.size(), 8U);
  EXPECT_EQ(timeline.peak.total(), 40 + 60 + 20);
  EXPECT_EQ(timeline.peak.op_seq, 1U);
  EXPECT_EQ(timeline.peak[Category::weight], 40);
  EXPECT_EQ(timeline.peak[Category::activation], 60);
  EXPECT_EQ(timeline.peak[Category::gradient], 20);
  EXPECT_EQ(timeline.end.total(), 0);
}

TEST(Memory, UnreleasedBuffersRemainAtTheEnd) {
  std::optional<Buffer> kept;
  const Recorded recorded{Mesh{{}}, [&](Rank& rank) {
                            kept = rank.allocate({10}, DType::f32, Category::communication);
                          }};
  EXPECT_EQ(memory_timeline(recorded.list(0).memory).end[Category::communication], 40);
  kept.reset();
  EXPECT_EQ(memory_timeline(recorded.list(0).memory).end.total(), 0);
}

TEST(Memory, NothingRecordedIsNothingAllocated) { EXPECT_EQ(memory_timeline({}).peak.total(), 0); }

}  // namespace
}  // namespace shardmark::test
