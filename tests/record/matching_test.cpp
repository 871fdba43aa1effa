#include "core/record/matching.hpp"

#include "core/error.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Mesh three_ranks{{.tp = 3}};

/// Positions: 0 all_gather, 1 matmul, 2 reduce_scatter, 3 all_reduce attention, 4 all_reduce mlp.
void program(Rank& rank) {
  const Group tp = rank.group(Axis::tp);
  const Buffer part = rank.allocate({4, 8}, DType::f32, Category::activation);
  const Buffer whole = rank.allocate({12, 8}, DType::f32, Category::activation);
  const Buffer w = rank.allocate({8, 8}, DType::f32, Category::weight);
  const Buffer y = rank.allocate({12, 8}, DType::f32, Category::activation);
  all_gather(rank, part.tensor(), whole.tensor(), tp, Lane::tp);
  matmul(rank, whole.tensor(), w.tensor(), y.tensor());
  reduce_scatter(rank, y.tensor(), part.tensor(), tp, Lane::tp);
  for (const char* name : {"attention", "mlp"}) {
    const auto scope = rank.scope(name);
    all_reduce(rank, part.tensor(), tp, Lane::tp);
  }
}

TEST(Matching, EqualProgramsAreClean) {
  EXPECT_THAT(check_matching(Recorded(three_ranks, program).ops), IsEmpty());
}

TEST(Matching, EveryDroppedCallIsCaught) {
  const Recorded recorded{three_ranks, program};
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (std::size_t position : {0U, 2U, 3U, 4U}) {
      auto ops = recorded.ops;
      ops[rank].erase(ops[rank].begin() + static_cast<std::ptrdiff_t>(position));
      EXPECT_THAT(check_matching(ops), testing::Not(IsEmpty())) << rank << ' ' << position;
    }
}

TEST(Matching, NamesTheDroppedCall) {
  Recorded recorded{three_ranks, program};
  recorded.ops[2].erase(recorded.ops[2].begin() + 3);
  EXPECT_THAT(
      check_matching(recorded.ops),
      ElementsAre("tp[0,1,2] lane tp, call 2: rank 0 submits #3 attention all_reduce of "
                  "128 bytes f32, rank 2 submits #4 mlp all_reduce of 128 bytes f32; a call "
                  "is missing"));
}

TEST(Matching, EverySwapIsCaught) {
  const Recorded recorded{three_ranks, program};
  for (const auto& [a, b] : {std::pair{0, 2}, {2, 3}, {3, 4}}) {
    auto ops = recorded.ops;
    std::swap(ops[1][static_cast<std::size_t>(a)], ops[1][static_cast<std::size_t>(b)]);
    EXPECT_THAT(check_matching(ops), Contains(HasSubstr("swapped"))) << a;
  }
}

TEST(Matching, ExtraCallIsCaught) {
  Recorded recorded{three_ranks, program};
  recorded.ops[1].push_back(recorded.ops[1].back());
  EXPECT_THAT(check_matching(recorded.ops),
              ElementsAre(AllOf(HasSubstr("call 4: rank 0 submits nothing, rank 1 submits #4"),
                                HasSubstr("too many"))));
}

TEST(Matching, ChangedTypeSizeReductionAndLaneAreCaught) {
  const auto mutated = [](const auto& change) {
    Recorded recorded{three_ranks, program};
    change(recorded.ops[1][3]);
    return check_matching(recorded.ops);
  };
  const auto op = [](OpRecord& record) -> AllReduce& { return std::get<AllReduce>(record.op); };
  EXPECT_THAT(mutated([](OpRecord&) {}), IsEmpty());
  EXPECT_THAT(mutated([&](OpRecord& r) { op(r).x.dtype = DType::bf16; }),
              ElementsAre(HasSubstr("64 bytes bf16")));
  EXPECT_THAT(mutated([&](OpRecord& r) { op(r).x.shape.set(0, 2); }),
              ElementsAre(HasSubstr("64 bytes f32")));
  EXPECT_THAT(mutated([&](OpRecord& r) { op(r).reduction = Reduction::max; }),
              ElementsAre(HasSubstr("(max)")));
  EXPECT_THAT(mutated([](OpRecord& r) { r.lane = Lane::dp; }), Contains(HasSubstr("missing")));
}

/// Without comparable paths only kind, dtype, size and reduction count.
TEST(Matching, RanksMayNameTheirScopesDifferently) {
  const Recorded recorded{three_ranks, [](Rank& rank) {
                            const auto scope = rank.scope(message("stage", rank.id()));
                            program(rank);
                          }};
  EXPECT_THAT(check_matching(recorded.ops), IsEmpty());
}

TEST(Matching, GroupsOutsideTheWorldAreReported) {
  const Recorded recorded{three_ranks, program};
  const std::vector<std::vector<OpRecord>> two{recorded.ops[0], recorded.ops[1]};
  EXPECT_THAT(check_matching(two),
              ElementsAre(HasSubstr("tp[0,1,2] lane tp has a member outside ranks 0 to 1")));
}

TEST(Matching, WrongPositionIsReported) {
  Recorded recorded{three_ranks, program};
  std::get<AllReduce>(recorded.ops[1][3].op).group.position = 0;
  EXPECT_THAT(check_matching(recorded.ops), ElementsAre(HasSubstr("as member 0 of tp[0,1,2]")));
}

TEST(Matching, GroupsOfOneNeedNobody) {
  Recorded recorded{Mesh{{.dp = 2}}, [](Rank& rank) {
                      const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
                      if (rank.id() == 0)
                        all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
                    }};
  EXPECT_THAT(check_matching(recorded.ops), IsEmpty());
}

}  // namespace
}  // namespace shardmark::test
