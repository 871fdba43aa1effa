#include "core/rank.hpp"

#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/record/backend.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

class RankTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> result;
    for (const OpRecord& record : list.ops) result.push_back(to_string(record));
    return result;
  }

  RecordBackend backend;
  OpList list;
  Rank rank{0, Mesh{{.tp = 2}}, backend, &list};
  Buffer x{rank.allocate({4, 8}, DType::f32, Category::activation)};
};

TEST_F(RankTest, ScopesNestAndComeBack) {
  EXPECT_EQ(rank.path(), "");
  {
    const auto block = rank.scope("block0");
    {
      const auto mlp = rank.scope("mlp");
      fill(rank, x.tensor(), 0);
    }
    fill(rank, x.tensor(), 0);
    EXPECT_EQ(rank.path(), "block0");
  }
  fill(rank, x.tensor(), 0);
  const auto again = rank.scope("block0");
  fill(rank, x.tensor(), 0);
  EXPECT_THAT(lines(), testing::ElementsAre("0 compute block0/mlp fill f32 -> 1+0:4x8",
                                            "1 compute block0 fill f32 -> 1+0:4x8",
                                            "2 compute - fill f32 -> 1+0:4x8",
                                            "3 compute block0 fill f32 -> 1+0:4x8"));
  EXPECT_EQ(list.ops[1].path, list.ops[3].path) << "paths are interned";
}

TEST_F(RankTest, SharedBuffersAreTheSameMemoryInTurns) {
  list.memory.clear();
  {
    std::vector<Buffer> pool;
    std::vector<Buffer> turns;
    for (int turn = 0; turn < 3; ++turn) {
      const Rank::Sharing sharing = rank.share(Category::gradient, pool);
      turns.push_back(rank.allocate({4, 2}, DType::f32, Category::gradient));
      turns.push_back(rank.allocate({8}, DType::bf16, Category::gradient));
      const Buffer own = rank.allocate({5}, DType::f32, Category::activation);
      EXPECT_NE(own.tensor().buffer, turns.back().tensor().buffer) << "of another category";
    }
    ASSERT_EQ(pool.size(), 2U);
    for (std::size_t i = 0; i < turns.size(); ++i)
      EXPECT_EQ(turns[i].tensor().buffer, pool[i % 2].tensor().buffer) << "buffer " << i;
    const Buffer after = rank.allocate({4, 2}, DType::f32, Category::gradient);
    EXPECT_NE(after.tensor().buffer, pool.front().tensor().buffer) << "no longer shared";
    const Rank::Sharing sharing = rank.share(Category::gradient, pool);
    EXPECT_THROW((void)rank.allocate({9}, DType::f32, Category::gradient), Error);
  }
  std::int64_t gradients = 0, balance = 0;
  for (const MemoryRecord& record : list.memory) {
    if (record.category == Category::gradient && record.bytes > 0) gradients += record.bytes;
    balance += record.bytes;
  }
  EXPECT_EQ(gradients, 32 + 16 + 32) << "the pool once, and one that was not shared";
  EXPECT_EQ(balance, 0) << "everything was given back once";
}

TEST_F(RankTest, FencesAreNumberedInOrder) {
  const Fence first = rank.signal(Lane::compute);
  const Fence second = rank.signal(Lane::tp);
  EXPECT_EQ(second.id, first.id + 1);
  rank.await(first, Lane::tp);
  EXPECT_THAT(lines(), testing::ElementsAre("0 compute - signal fence1", "1 tp - signal fence2",
                                            "2 tp - await fence1"));
}

TEST_F(RankTest, OrderIsLeftOutWhenNothingIsNew) {
  rank.order(Lane::compute, Lane::tp);
  EXPECT_TRUE(list.ops.empty()) << "an empty lane has nothing to wait for";
  fill(rank, x.tensor(), 0);
  rank.order(Lane::compute, Lane::tp);
  EXPECT_EQ(list.ops.size(), 3U);
  rank.order(Lane::compute, Lane::tp);
  EXPECT_EQ(list.ops.size(), 3U) << "nothing new on compute";
  rank.order(Lane::compute, Lane::cp);
  EXPECT_EQ(list.ops.size(), 5U) << "another lane waits for itself";
  fill(rank, x.tensor(), 0);
  rank.order(Lane::compute, Lane::tp);
  EXPECT_EQ(list.ops.size(), 8U);
}

/// What a lane waited for counts as its own: a third lane that waits for it waits for both.
TEST_F(RankTest, OrderCountsAwaits) {
  fill(rank, x.tensor(), 0);
  rank.order(Lane::compute, Lane::tp);
  rank.order(Lane::tp, Lane::cp);
  EXPECT_THAT(lines(), testing::ElementsAre(testing::_, testing::_, "2 tp - await fence1",
                                            "3 tp - signal fence2", "4 cp - await fence2"));
}

TEST_F(RankTest, MemoryIsRecordedAtAllocationAndRelease) {
  {
    const Buffer y = rank.allocate({16}, DType::bf16, Category::gradient);
    fill(rank, y.tensor(), 0);
  }
  ASSERT_EQ(list.memory.size(), 3U);
  EXPECT_EQ(list.memory[0].bytes, 128);
  EXPECT_EQ(list.memory[1].bytes, 32);
  EXPECT_EQ(list.memory[1].op_seq, 0U);
  EXPECT_EQ(list.memory[2].bytes, -32);
  EXPECT_EQ(list.memory[2].op_seq, 1U);
  EXPECT_EQ(list.memory[2].buffer, list.memory[1].buffer);
  EXPECT_EQ(list.memory[2].category, Category::gradient);
}

TEST_F(RankTest, AMovedBufferIsReleasedOnce) {
  {
    Buffer y = rank.allocate({16}, DType::f32, Category::weight);
    const Buffer z = std::move(y);
    EXPECT_EQ(z.tensor().numel(), 16);
  }
  EXPECT_EQ(list.memory.size(), 3U);
}

TEST_F(RankTest, ASinkCanBeTakenAway) {
  rank.set_sink(nullptr);
  fill(rank, x.tensor(), 0);
  EXPECT_TRUE(list.ops.empty());
  rank.set_sink(&list);
  fill(rank, x.tensor(), 0);
  EXPECT_EQ(list.ops.front().seq, 1U) << "ops are numbered all the same";
}

TEST(Rank, StandsInsideItsMesh) {
  RecordBackend backend;
  EXPECT_THROW((Rank{2, Mesh{{.tp = 2}}, backend}), Error);
}

}  // namespace
}  // namespace shardmark
