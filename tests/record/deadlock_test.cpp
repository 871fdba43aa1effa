#include "core/record/deadlock.hpp"

#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace shardmark::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Mesh grid{{.dp = 2, .tp = 2}};

/// tp and dp all-reduces, each on its own lane; `dp_first` swaps them where lanes are shared.
void reduce_twice(Rank& rank, Lane tp_lane, Lane dp_lane, bool dp_first) {
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  for (const bool dp : {dp_first, !dp_first}) {
    const Lane lane = dp ? dp_lane : tp_lane;
    rank.await(rank.signal(Lane::compute), lane);
    all_reduce(rank, x.tensor(), rank.group(dp ? Axis::dp : Axis::tp), lane);
    rank.await(rank.signal(lane), Lane::compute);
  }
}

TEST(Deadlock, EqualOrderFinishes) {
  for (const bool dp_first : {false, true})
    EXPECT_THAT(
        find_deadlock(
            Recorded(grid, [&](Rank& rank) { reduce_twice(rank, Lane::tp, Lane::dp, dp_first); })
                .ops),
        IsEmpty());
}

/// Ranks 0 and 3 begin with tp, 1 and 2 with dp: everyone waits for somebody else.
void cyclic(Rank& rank) {
  reduce_twice(rank, Lane::tp, Lane::dp, rank.id() == 1 || rank.id() == 2);
}

TEST(Deadlock, CyclicOrderIsCaughtAndExplained) {
  const auto problems = find_deadlock(Recorded(grid, cyclic).ops);
  EXPECT_THAT(problems, Contains("rank 0 lane tp is stuck at #2 - all_reduce: waits for tp[0,1], "
                                 "not reached by rank 1"));
  EXPECT_THAT(problems, Contains(HasSubstr("rank 1 lane dp is stuck at #2 - all_reduce: waits for "
                                           "dp[1,3], not reached by rank 3")));
  EXPECT_THAT(problems, Contains(HasSubstr("rank 0 lane compute is stuck at #4 - await: waits for "
                                           "fence 2, signalled by #3 - signal on lane tp")));
}

/// On one lane a swap by one rank only changes who waits; by two opposite ranks it closes a cycle.
TEST(Deadlock, OppositeSwapsOnASharedLaneAreCaught) {
  const auto shared = [](std::initializer_list<int> swapping) {
    return Recorded{grid, [swapping](Rank& rank) {
                      reduce_twice(rank, Lane::tp, Lane::tp,
                                   std::ranges::count(swapping, rank.id()) > 0);
                    }};
  };
  EXPECT_THAT(find_deadlock(shared({}).ops), IsEmpty());
  EXPECT_THAT(find_deadlock(shared({0}).ops), IsEmpty());
  EXPECT_THAT(find_deadlock(shared({0, 3}).ops), Not(IsEmpty()));
}

TEST(Deadlock, DroppedCallIsCaught) {
  Recorded recorded{grid, [](Rank& rank) { reduce_twice(rank, Lane::tp, Lane::dp, false); }};
  recorded.ops[3].erase(recorded.ops[3].begin() + 2);
  EXPECT_THAT(find_deadlock(recorded.ops), Contains(HasSubstr("tp[2,3], not reached by rank 3")));
}

TEST(Deadlock, AwaitWithoutSignalIsCaught) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) { rank.await(Fence{9}, Lane::tp); }};
  EXPECT_THAT(find_deadlock(recorded.ops),
              ElementsAre("rank 0 lane tp is stuck at #0 - await: waits for fence 9, which nobody "
                          "signals"));
}

/// A signal that itself waits for the awaiting lane.
TEST(Deadlock, CycleOfFencesIsCaught) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) {
                            rank.await(Fence{1}, Lane::compute);
                            rank.submit(Signal{Fence{2}}, Lane::compute);
                            rank.await(Fence{2}, Lane::tp);
                            rank.submit(Signal{Fence{1}}, Lane::tp);
                          }};
  EXPECT_EQ(find_deadlock(recorded.ops).size(), 2U);
}

TEST(Deadlock, MissingRanksAreNamed) {
  const Recorded recorded{Mesh{{.tp = 3}}, [](Rank& rank) {
                            const Buffer x = rank.allocate({4}, DType::f32, Category::weight);
                            all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
                          }};
  const std::vector<std::vector<OpRecord>> two{recorded.ops[0], recorded.ops[1]};
  EXPECT_THAT(find_deadlock(two), Contains(HasSubstr("not reached by rank 2")));
}

const Mesh ring{{.tp = 3}};

/// Every rank sends on and receives from behind, at once or, if `apart`, first the one and then the
/// other; the one that `receives_first` the other way round.
void pass_on(Rank& rank, bool apart, int receives_first = -1) {
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  const Buffer y = rank.allocate({4}, DType::f32, Category::activation);
  const Group group = rank.group(Axis::tp);
  const int next = (group.position + 1) % group.size;
  const int previous = (group.position + group.size - 1) % group.size;
  if (!apart) return send_recv(rank, x.tensor(), next, y.tensor(), previous, group, Lane::tp);
  const auto send = [&] { send_recv(rank, x.tensor(), next, Tensor{}, -1, group, Lane::tp); };
  const auto receive = [&] {
    send_recv(rank, Tensor{}, -1, y.tensor(), previous, group, Lane::tp);
  };
  if (group.position == receives_first) {
    receive();
    send();
  } else {
    send();
    receive();
  }
}

TEST(Deadlock, MessagesBothWaysFinish) {
  EXPECT_THAT(find_deadlock(Recorded(ring, [](Rank& rank) { pass_on(rank, false); }).ops),
              IsEmpty());
  EXPECT_THAT(find_deadlock(Recorded(ring, [](Rank& rank) { pass_on(rank, true, 1); }).ops),
              IsEmpty());
}

TEST(Deadlock, ACycleOfSendsThatWaitIsCaught) {
  const auto problems = find_deadlock(Recorded(ring, [](Rank& rank) { pass_on(rank, true); }).ops);
  EXPECT_THAT(problems, testing::SizeIs(3));
  EXPECT_THAT(problems, Contains("rank 0 lane tp is stuck at #0 - send_recv: waits for rank 1 to "
                                 "receive on tp[0,1,2]"));
}

/// Every rank sends on one lane and receives on another.
void pass_on(Rank& rank, Lane sending, Lane receiving) {
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  const Buffer y = rank.allocate({4}, DType::f32, Category::activation);
  const Group group = rank.group(Axis::tp);
  send_recv(rank, x.tensor(), (group.position + 1) % 3, {}, -1, group, sending);
  send_recv(rank, {}, -1, y.tensor(), (group.position + 2) % 3, group, receiving);
}

TEST(Deadlock, TheLanesOfAPipelineMeetInTheirDirection) {
  const auto problems = [](Lane sending, Lane receiving) {
    return find_deadlock(
        Recorded(ring, [&](Rank& rank) { pass_on(rank, sending, receiving); }).ops);
  };
  EXPECT_THAT(problems(Lane::pp_fwd_send, Lane::pp_fwd_recv), IsEmpty());
  EXPECT_THAT(problems(Lane::pp_bwd_send, Lane::pp_bwd_recv), IsEmpty());
  EXPECT_THAT(problems(Lane::pp_fwd_send, Lane::pp_bwd_recv), testing::SizeIs(6));
  EXPECT_THAT(problems(Lane::pp_fwd_send, Lane::cp), testing::SizeIs(6));
}

TEST(Deadlock, ADroppedReceiveIsCaught) {
  Recorded recorded{ring, [](Rank& rank) { pass_on(rank, true, 1); }};
  recorded.ops[1].erase(recorded.ops[1].begin());
  EXPECT_THAT(find_deadlock(recorded.ops),
              Contains(HasSubstr("rank 0 lane tp is stuck at #0 - send_recv: waits for rank 1 to "
                                 "receive")));
}

TEST(Deadlock, AMessageToItselfFinishes) {
  EXPECT_THAT(find_deadlock(Recorded(ring,
                                     [](Rank& rank) {
                                       const Buffer x =
                                           rank.allocate({4}, DType::f32, Category::activation);
                                       const Group group = rank.group(Axis::tp);
                                       const int me = group.position;
                                       send_recv(rank, x.tensor().row_block(0, 2), me,
                                                 x.tensor().row_block(2, 2), me, group, Lane::tp);
                                     })
                                .ops),
              IsEmpty());
}

TEST(Deadlock, ACollectiveAmongMessagesIsCaught) {
  const auto program = [](Rank& rank) {
    const Group group = rank.group(Axis::tp);
    if (group.position == 0) barrier(rank, group, Lane::tp);
    pass_on(rank, false);
    if (group.position != 0) barrier(rank, group, Lane::tp);
  };
  const auto problems = find_deadlock(Recorded(ring, program).ops);
  EXPECT_THAT(problems, Contains(HasSubstr("rank 1 lane tp is stuck at #0 - send_recv: waits for "
                                           "rank 0 to send")));
  EXPECT_THAT(problems, Contains(HasSubstr("rank 0 lane tp is stuck at #0 - barrier: waits for "
                                           "tp[0,1,2], not reached by rank 1 2")));
}

}  // namespace
}  // namespace shardmark::test
