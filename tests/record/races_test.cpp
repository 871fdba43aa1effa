#include "core/record/races.hpp"

#include "core/record/mutate.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

#include <chrono>

namespace shardmark::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Mesh one_rank{{}};

/// x = a b in two row chunks; the all-reduce of each chunk runs behind the matmul of the next.
void chunked_linear(Rank& rank) {
  const auto scope = rank.scope("linear");
  const Buffer a = rank.allocate({8, 4}, DType::f32, Category::activation);
  const Buffer b = rank.allocate({4, 6}, DType::f32, Category::weight);
  const Buffer c = rank.allocate({8, 6}, DType::f32, Category::activation);
  fill(rank, a.tensor(), 1);
  for (std::int64_t row = 0; row < 8; row += 4) {
    const Tensor chunk = c.tensor().row_block(row, 4);
    matmul(rank, a.tensor().row_block(row, 4), b.tensor(), chunk);
    rank.order(Lane::compute, Lane::tp);
    all_reduce(rank, chunk, rank.group(Axis::tp), Lane::tp);
  }
  rank.order(Lane::tp, Lane::compute);
  gelu(rank, c.tensor(), c.tensor(), GeluKind::erf);
}

TEST(Races, FencedProgramIsClean) {
  EXPECT_THAT(find_races(Recorded(one_rank, chunked_linear).ops[0]), IsEmpty());
}

TEST(Races, EveryDeletedFenceIsCaught) {
  const Recorded recorded{one_rank, chunked_linear};
  const auto awaits = positions_of_awaits(recorded.ops[0]);
  ASSERT_EQ(awaits.size(), 3U);
  for (const std::size_t await : awaits)
    EXPECT_THAT(find_races(without_op(recorded.ops[0], await)), Not(IsEmpty())) << await;
}

TEST(Races, NamesBothOpsAndTheBuffer) {
  const Recorded recorded{one_rank, [](Rank& rank) {
                            const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
                            const auto scope = rank.scope("mlp");
                            fill(rank, x.tensor(), 1);
                            all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
                          }};
  EXPECT_THAT(find_races(recorded.ops[0]),
              ElementsAre("#0 mlp fill on lane compute writes and #1 mlp all_reduce on lane tp "
                          "reads buffer 1, and no fence orders them"));
}

/// What it adds to it reads first.
TEST(Races, AnAttentionBackwardReadsTheSumsItAddsTo) {
  const auto races = [](bool accumulate) {
    const Recorded recorded{
        one_rank, [accumulate](Rank& rank) {
          const Buffer x = rank.allocate({4, 8}, DType::f32, Category::activation);
          const Buffer lse = rank.allocate({1, 1, 4}, DType::f32, Category::activation);
          const Buffer dx = rank.allocate({3, 4, 8}, DType::f32, Category::gradient);
          const Tensor q = x.tensor(), dq = dx.tensor().row_block(0, 1);
          const Tensor dk = dx.tensor().row_block(1, 1), dv = dx.tensor().row_block(2, 1);
          fill(rank, dv, 0);
          rank.submit(AttentionBackward{.q = q,
                                        .k = q,
                                        .v = q,
                                        .o = q,
                                        .lse = lse.tensor(),
                                        .d_o = q,
                                        .dq = dq,
                                        .dk = dk,
                                        .dv = dv,
                                        .shape = {},
                                        .accumulate = accumulate},
                      Lane::tp);
        }};
    return find_races(recorded.ops[0]);
  };
  EXPECT_THAT(races(true), ElementsAre(HasSubstr("attention_bwd on lane tp reads buffer 3")));
  EXPECT_THAT(races(false), ElementsAre(HasSubstr("attention_bwd on lane tp writes buffer 3")));
}

TEST(Races, AwaitBeforeSignalIsReported) {
  const Recorded recorded{one_rank, [](Rank& rank) {
                            rank.await(Fence{7}, Lane::tp);
                            rank.submit(Signal{Fence{7}}, Lane::compute);
                          }};
  EXPECT_THAT(find_races(recorded.ops[0]), ElementsAre(HasSubstr("waits for fence 7")));
}

TEST(Races, OrderIsTransitiveAcrossLanes) {
  const auto program = [](bool complete) {
    return [complete](Rank& rank) {
      const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
      rank.submit(Fill{x.tensor(), 1}, Lane::compute);
      rank.order(Lane::compute, Lane::tp);
      if (complete) rank.order(Lane::tp, Lane::dp);
      rank.submit(Fill{x.tensor(), 2}, Lane::dp);
    };
  };
  EXPECT_THAT(find_races(Recorded(one_rank, program(true)).ops[0]), IsEmpty());
  EXPECT_THAT(find_races(Recorded(one_rank, program(false)).ops[0]), Not(IsEmpty()));
}

TEST(Races, ReadsDoNotConflict) {
  const Recorded recorded{
      one_rank, [](Rank& rank) {
        const Buffer x = rank.allocate({4, 4}, DType::f32, Category::weight);
        const Buffer y = rank.allocate({4, 4}, DType::f32, Category::activation);
        const Buffer z = rank.allocate({4, 4}, DType::f32, Category::activation);
        rank.submit(Copy{x.tensor(), y.tensor()}, Lane::compute);
        rank.submit(Copy{x.tensor(), z.tensor()}, Lane::copy);
      }};
  EXPECT_THAT(find_races(recorded.ops[0]), IsEmpty());
}

/// Two lanes write columns [0, 3) and [first, first + 3) of one buffer.
std::vector<std::string> races_of_columns(std::int64_t first) {
  const Recorded recorded{one_rank, [first](Rank& rank) {
                            const Buffer x = rank.allocate({4, 6}, DType::f32, Category::weight);
                            rank.submit(Fill{x.tensor().column_block(0, 3), 1}, Lane::compute);
                            rank.submit(Fill{x.tensor().column_block(first, 3), 2}, Lane::tp);
                          }};
  return find_races(recorded.ops[0]);
}

TEST(Races, DisjointColumnBlocksDoNotConflict) {
  EXPECT_THAT(races_of_columns(3), IsEmpty());
  EXPECT_THAT(races_of_columns(2), Not(IsEmpty()));
}

/// An access covered by a newer one is forgotten; one that is covered in part is not.
TEST(Races, PartlyOverwrittenAccessIsRemembered) {
  const auto program = [](std::int64_t second_columns) {
    return [second_columns](Rank& rank) {
      const Buffer x = rank.allocate({4, 6}, DType::f32, Category::weight);
      rank.submit(Fill{x.tensor(), 1}, Lane::tp);
      rank.order(Lane::tp, Lane::compute);
      const Fence first = rank.signal(Lane::tp);
      rank.submit(Fill{x.tensor().column_block(0, second_columns), 2}, Lane::compute);
      rank.await(first, Lane::dp);
      rank.submit(Copy{x.tensor().column_block(4, 2), x.tensor().column_block(4, 2)}, Lane::dp);
    };
  };
  EXPECT_THAT(find_races(Recorded(one_rank, program(4)).ops[0]), IsEmpty());
  EXPECT_THAT(find_races(Recorded(one_rank, program(5)).ops[0]), Not(IsEmpty()));
}

TEST(Races, LargeProgramsAreChecked) {
  const Recorded recorded{one_rank, [](Rank& rank) {
                            const Buffer a = rank.allocate({8, 8}, DType::f32, Category::weight);
                            const Buffer c = rank.allocate({8, 8}, DType::f32, Category::weight);
                            for (int i = 0; i < 12'000; ++i) {
                              for (std::int64_t row = 0; row < 8; row += 4)
                                matmul(rank, a.tensor().row_block(row, 4), a.tensor(),
                                       c.tensor().row_block(row, 4));
                              rank.order(Lane::compute, Lane::tp);
                              all_reduce(rank, c.tensor(), rank.group(Axis::tp), Lane::tp);
                              rank.order(Lane::tp, Lane::compute);
                              gelu(rank, c.tensor(), c.tensor(), GeluKind::erf);
                            }
                          }};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(find_races(recorded.ops[0]), IsEmpty());
  const std::chrono::duration<double> spent_s = std::chrono::steady_clock::now() - begin;
  RecordProperty("ops", static_cast<int>(recorded.ops[0].size()));
  RecordProperty("seconds", std::to_string(spent_s.count()));
  EXPECT_LT(spent_s.count(), 5.0);
}

}  // namespace
}  // namespace shardmark::test
