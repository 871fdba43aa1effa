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

/// Rooted collectives, a reduction, uneven blocks, then two messages to the next rank.
void all_kinds(Rank& rank) {
  const Group group = rank.group(Axis::tp);
  static constexpr std::int64_t counts[] = {1, 0, 2, 0, 3, 0, 1, 1, 1};
  const auto n = static_cast<std::size_t>(group.size);
  const auto me = static_cast<std::size_t>(group.position);
  std::int64_t sent = 0, received = 0;
  for (std::size_t peer = 0; peer < n; ++peer) {
    sent += counts[me * n + peer];
    received += counts[peer * n + me];
  }
  const Buffer part = rank.allocate({4}, DType::f32, Category::activation);
  const Buffer whole = rank.allocate({12}, DType::f32, Category::activation);
  const Buffer from = rank.allocate({sent}, DType::i8, Category::activation);
  const Buffer to = rank.allocate({received}, DType::i8, Category::activation);
  const Tensor x = part.tensor(), y = whole.tensor();
  broadcast(rank, x, x, group, 1, Lane::tp);                                // #0
  reduce_to_root(rank, x, x, group, 2, Lane::tp, Reduction::avg);           // #1
  gather_to_root(rank, x, y, group, 0, Lane::tp);                           // #2
  scatter_from_root(rank, y, x, group, 0, Lane::tp);                        // #3
  all_to_all_v(rank, from.tensor(), to.tensor(), group, counts, Lane::tp);  // #4
  barrier(rank, group, Lane::tp);                                           // #5
  const int next = (group.position + 1) % group.size;
  const int previous = (group.position + group.size - 1) % group.size;
  send_recv(rank, x, next, y.row_block(0, 4), previous, group, Lane::tp);  // #6
  send_recv(rank, x.row_block(0, 2), next, y.row_block(0, 2), previous, group, Lane::tp);
}

template <class Change>
std::vector<std::string> problems_after(const Change& change) {
  Recorded recorded{three_ranks, all_kinds};
  change(recorded.ops[1]);
  return check_matching(recorded.ops);
}
using Records = std::vector<OpRecord>;

TEST(Matching, RootsReductionsAndCountsAreCompared) {
  EXPECT_THAT(problems_after([](Records&) {}), IsEmpty());
  EXPECT_THAT(problems_after([](Records& ops) { std::get<Broadcast>(ops[0].op).root = 0; }),
              ElementsAre(AllOf(HasSubstr("rank 0 submits #0 - broadcast of 16 bytes f32 with "
                                          "root 1"),
                                HasSubstr("with root 0"))));
  EXPECT_THAT(
      problems_after([](Records& ops) { std::get<Reduce>(ops[1].op).reduction = Reduction::min; }),
      ElementsAre(AllOf(HasSubstr("(avg) with root 2"), HasSubstr("(min) with root 2"))));
  static constexpr std::int64_t others[] = {1, 0, 2, 0, 3, 0, 1, 0, 2};
  EXPECT_THAT(problems_after([](Records& ops) { std::get<AllToAllV>(ops[4].op).counts = others; }),
              ElementsAre(HasSubstr("counts 1 0 2 0 3 0 1 0 2")));
  EXPECT_THAT(problems_after([](Records& ops) { ops.erase(ops.begin() + 5); }),
              ElementsAre(HasSubstr("missing")));
}

TEST(Matching, MessagesAreMatchedByPairsInOrder) {
  EXPECT_THAT(problems_after([](Records& ops) { std::swap(ops[6], ops[7]); }),
              ElementsAre(HasSubstr("message 0 from rank 0 to rank 1: sends 16 bytes f32 at #6 - "
                                    "send_recv, receives 8 bytes f32 at #7 - send_recv"),
                          HasSubstr("message 0 from rank 1 to rank 2")));
  EXPECT_THAT(problems_after([](Records& ops) { std::get<SendRecv>(ops[7].op).from = -1; }),
              ElementsAre(HasSubstr("message 1 from rank 0 to rank 1: sends 8 bytes f32 at #7 - "
                                    "send_recv, receives nothing")));
  EXPECT_THAT(
      problems_after([](Records& ops) { std::get<SendRecv>(ops[6].op).x.dtype = DType::i32; }),
      ElementsAre(HasSubstr("sends 16 bytes i32 at #6 - send_recv, receives 16 bytes f32")));
  EXPECT_THAT(problems_after([](Records& ops) { std::get<SendRecv>(ops[7].op).to = 3; }),
              Contains(HasSubstr("with member 3 of tp[0,1,2], which has none")));
}

/// Position 0 sends forward, 1 receives, 2 sends again; the same backward from 3 on.
void pipeline_messages(Rank& rank) {
  const Group group = rank.group(Axis::tp);
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  const Buffer y = rank.allocate({4}, DType::f32, Category::activation);
  const int next = (group.position + 1) % 3, previous = (group.position + 2) % 3;
  const auto pass_on = [&](int to, Lane sending, int from, Lane receiving) {
    send_recv(rank, x.tensor(), to, {}, -1, group, sending);
    send_recv(rank, {}, -1, y.tensor(), from, group, receiving);
    send_recv(rank, x.tensor().row_block(0, 2), to, {}, -1, group, sending);
    send_recv(rank, {}, -1, y.tensor().row_block(0, 2), from, group, receiving);
  };
  pass_on(next, Lane::pp_fwd_send, previous, Lane::pp_fwd_recv);
  pass_on(previous, Lane::pp_bwd_send, next, Lane::pp_bwd_recv);
}

TEST(Matching, TheLanesOfAPipelineMeetInTheirDirection) {
  const auto problems = [](const auto& change) {
    Recorded recorded{three_ranks, pipeline_messages};
    change(recorded.ops[1]);
    return check_matching(recorded.ops);
  };
  EXPECT_THAT(problems([](Records&) {}), IsEmpty());
  EXPECT_THAT(problems([](Records& ops) { std::swap(ops[0], ops[2]); }),
              ElementsAre(HasSubstr("lane pp_fwd_send, message 0 from rank 1 to rank 2: sends 8 "
                                    "bytes f32 at #2 - send_recv, receives 16 bytes")));
  EXPECT_THAT(problems([](Records& ops) { ops.erase(ops.begin() + 7); }),
              ElementsAre(HasSubstr("lane pp_bwd_send, message 1 from rank 2 to rank 1: sends 8 "
                                    "bytes f32 at #6 - send_recv, receives nothing")));
  EXPECT_THAT(problems([](Records& ops) { ops[1].lane = Lane::pp_bwd_recv; }),
              Contains(HasSubstr("lane pp_fwd_send, message 0 from rank 0 to rank 1")));
}

/// Which of two messages comes first is nowhere said if they leave on the two lanes of a channel.
TEST(Matching, OneWayUsesOneLane) {
  Recorded recorded{three_ranks, pipeline_messages};
  recorded.ops[1][2].lane = Lane::pp_fwd_recv;
  EXPECT_THAT(check_matching(recorded.ops),
              ElementsAre("tp[0,1,2] lane pp_fwd_send: rank 1 submits #0 - send_recv on lane "
                          "pp_fwd_send and #2 - send_recv on lane pp_fwd_recv, which have no "
                          "order"));
}

}  // namespace
}  // namespace shardmark::test
