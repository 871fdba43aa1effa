#include "sim/replay.hpp"

#include "core/error.hpp"
#include "profiler/analyse.hpp"
#include "sim/measured.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace shardmark::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A Fill takes as many nanoseconds as its value, a message of n floats n, anything else 5.
std::int64_t simple_cost(int, const OpRecord& record) {
  if (const auto* fill = std::get_if<Fill>(&record.op))
    return static_cast<std::int64_t>(fill->value);
  if (const auto* message = std::get_if<SendRecv>(&record.op)) return message->x.numel();
  return 5;
}

/// A rank's program with the words of these tests.
struct Words {
  explicit Words(Rank& r) : rank{r}, buffer{r.allocate({100}, DType::f32, Category::activation)} {}
  void work(int time_ns) { fill(rank, buffer.tensor(), static_cast<float>(time_ns)); }
  void reduce(Axis axis, Lane lane) { all_reduce(rank, buffer.tensor(), rank.group(axis), lane); }
  void send(int to, int numel, Lane lane) {
    send_recv(rank, buffer.tensor().row_block(0, numel), to, {}, -1, rank.group(Axis::pp), lane);
  }
  void receive(int from, int numel, Lane lane) {
    send_recv(rank, {}, -1, buffer.tensor().row_block(0, numel), from, rank.group(Axis::pp), lane);
  }
  Rank& rank;
  Buffer buffer;
};

std::vector<std::int64_t> ends(const Replay& run, std::size_t rank) {
  std::vector<std::int64_t> result;
  for (const TimedOp& op : run.ops[rank]) result.push_back(op.end_ns);
  return result;
}
using Times = std::vector<std::int64_t>;

void expect_no_residual(const Replay& run) {
  for (const RankTime& time : run.times) EXPECT_EQ(time.residual_ns(run.window_ns), 0);
}

TEST(Replay, ACollectiveRunsWhenAllMembersHaveCome) {
  const Recorded recorded{Mesh{{.tp = 3}}, [](Rank& rank) {
                            Words w{rank};
                            w.work(10 * (rank.id() + 1));
                            w.reduce(Axis::tp, Lane::compute);
                            w.work(rank.id() == 0 ? 7 : 1);
                          }};
  const Replay run = replay(recorded.ops, simple_cost);
  EXPECT_EQ(ends(run, 0), (Times{10, 35, 42}));
  EXPECT_EQ(ends(run, 1), (Times{20, 35, 36}));
  EXPECT_EQ(ends(run, 2), (Times{30, 35, 36}));
  EXPECT_EQ(run.window_ns, 42);
  EXPECT_EQ(run.ops[0][1].start_ns, 10);
  EXPECT_EQ(run.ops[0][1].ready_ns, 30);
  EXPECT_EQ(run.times[0].wait_ns, 20);
  EXPECT_EQ(run.times[2].wait_ns, 0);
  for (const RankTime& time : run.times) EXPECT_EQ(time.transfer_ns, 5);
  EXPECT_EQ(run.times[0].exposed_comm_ns, 25);
  EXPECT_EQ(run.times[0].idle_ns, 0);
  EXPECT_EQ(run.times[1].idle_ns, 6);
  EXPECT_EQ(run.times[1].drain_ns, 6);
  expect_no_residual(run);
}

/// The all-reduce of the first work runs beside the second; the third waits for it.
TEST(Replay, LanesOverlapAndFencesOrderThem) {
  const auto program = [](int second_ns) {
    return [second_ns](Rank& rank) {
      Words w{rank};
      w.work(10);
      rank.order(Lane::compute, Lane::tp);
      w.reduce(Axis::tp, Lane::tp);
      w.work(second_ns);
      rank.order(Lane::tp, Lane::compute);
      w.work(1);
    };
  };
  const Recorded hidden{Mesh{{.tp = 2}}, program(8)};
  const Replay run = replay(hidden.ops, simple_cost);
  EXPECT_EQ(run.window_ns, 19);
  EXPECT_EQ(run.times[0].overlapped_ns, 5);
  EXPECT_EQ(run.times[0].exposed_comm_ns, 0);
  const Recorded shown{Mesh{{.tp = 2}}, program(2)};
  const Replay exposed = replay(shown.ops, simple_cost);
  EXPECT_EQ(exposed.window_ns, 16);
  EXPECT_EQ(exposed.times[1].overlapped_ns, 2);
  EXPECT_EQ(exposed.times[1].exposed_comm_ns, 3);
  expect_no_residual(run);
  expect_no_residual(exposed);
}

/// Three stages pass two micro-batches on: a send is not over before its receive began.
TEST(Replay, MessagesMeetAsWithRendezvous) {
  const Recorded recorded{Mesh{{.pp = 3}}, [](Rank& rank) {
                            Words w{rank};
                            const int stage = rank.id();
                            for (int micro = 0; micro < 2; ++micro) {
                              if (stage > 0) w.receive(stage - 1, 4, Lane::compute);
                              w.work(10 * (stage + 1));
                              if (stage < 2) w.send(stage + 1, 4, Lane::compute);
                            }
                          }};
  const Replay run = replay(recorded.ops, simple_cost);
  EXPECT_EQ(ends(run, 0), (Times{10, 14, 24, 42}));
  EXPECT_EQ(ends(run, 1), (Times{14, 34, 38, 42, 62, 72}));
  EXPECT_EQ(ends(run, 2), (Times{38, 68, 72, 102}));
  EXPECT_EQ(run.times[0].wait_ns, 14);  // the second send, from 24 to 38
  EXPECT_EQ(run.times[1].wait_ns, 10 + 6);
  EXPECT_EQ(run.times[2].wait_ns, 34);
  EXPECT_EQ(run.times[0].drain_ns, 60);
  EXPECT_EQ(run.times[0].idle_ns, 60);
  expect_no_residual(run);
}

/// Both directions at once, round a ring of three; each ends with its later message.
TEST(Replay, ASendRecvEndsWithItsLastMessage) {
  const Recorded recorded{Mesh{{.pp = 3}}, [](Rank& rank) {
                            Words w{rank};
                            w.work(10 * rank.id());
                            const int to = (rank.id() + 1) % 3, from = (rank.id() + 2) % 3;
                            send_recv(rank, w.buffer.tensor().row_block(0, 1 + rank.id()), to,
                                      w.buffer.tensor().row_block(50, 1 + from), from,
                                      rank.group(Axis::pp), Lane::compute);
                          }};
  const Replay run = replay(recorded.ops, simple_cost);
  // 0 -> 1: both there at 10, takes 1; 1 -> 2: 20 and 2; 2 -> 0: 20 and 3.
  EXPECT_EQ(run.ops[0][1].end_ns, 23);
  EXPECT_EQ(run.ops[1][1].end_ns, 22);
  EXPECT_EQ(run.ops[2][1].end_ns, 23);
  expect_no_residual(run);
}

TEST(Replay, AMessageToOneselfAndAGroupOfOneWaitForNobody) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) {
                            Words w{rank};
                            w.reduce(Axis::tp, Lane::tp);
                            send_recv(rank, w.buffer.tensor().row_block(0, 3), 0,
                                      w.buffer.tensor().row_block(50, 3), 0, rank.group(Axis::pp),
                                      Lane::tp);
                          }};
  EXPECT_EQ(ends(replay(recorded.ops, simple_cost), 0), (Times{5, 8}));
}

/// A stage of 1F1B, or of GPipe: `warm_up` forwards before backwards and forwards take turns.
void pipeline_stage(Rank& rank, int num_micro, int warm_up) {
  constexpr int forward_ns = 10, backward_ns = 20;
  Words w{rank};
  const int stage = rank.id(), last = rank.mesh().degree(Axis::pp) - 1;
  const auto pass = [&](bool forward) {
    const bool receives = forward ? stage > 0 : stage < last;
    const bool sends = forward ? stage < last : stage > 0;
    const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
    if (receives) {
      const Lane lane = forward ? Lane::pp_fwd_recv : Lane::pp_bwd_recv;
      w.receive(from, 0, lane);
      rank.order(lane, Lane::compute);
    }
    w.work(forward ? forward_ns : backward_ns);
    if (sends) {
      const Lane lane = forward ? Lane::pp_fwd_send : Lane::pp_bwd_send;
      rank.order(Lane::compute, lane);
      w.send(to, 0, lane);
    }
  };
  for (int done = 0; done < num_micro + warm_up; ++done) {
    if (done < num_micro) pass(true);
    if (done >= warm_up) pass(false);
  }
}

/// Messages take no time: the bubble is (p - 1)(F + B) (METRICS 1.4; Narayanan et al. 2021).
TEST(Replay, PipelinesHaveTheBubbleOfTheory) {
  struct Size {
    int stages, micro;
  };
  for (const auto& [stages, micro] : std::vector<Size>{
           {2, 2}, {2, 8}, {3, 3}, {3, 7}, {4, 4}, {4, 32}, {7, 9}, {16, 20}, {64, 65}})
    for (const bool gpipe : {false, true}) {
      const Recorded recorded{Mesh{{.pp = stages}}, [&, s = stages, m = micro](Rank& rank) {
                                pipeline_stage(rank, m,
                                               gpipe ? m - 1 : std::min(m, s - 1 - rank.id()));
                              }};
      const Replay run = replay(recorded.ops, simple_cost);
      EXPECT_EQ(run.window_ns, (micro + stages - 1) * 30) << stages << " stages, " << micro;
      for (const RankTime& time : run.times) EXPECT_EQ(time.comp_ns, micro * 30);
      expect_no_residual(run);
    }
}

TEST(Replay, DeadlockIsReportedLaneByLane) {
  const Recorded recorded{Mesh{{.pp = 2}}, [](Rank& rank) {
                            Words w{rank};
                            const auto scope = rank.scope("swap");
                            w.send(1 - rank.id(), 4, Lane::compute);
                            w.receive(1 - rank.id(), 4, Lane::compute);
                          }};
  try {
    (void)replay(recorded.ops, simple_cost);
    FAIL() << "finished";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("deadlock"),
                      HasSubstr("rank 0 lane compute is stuck at #0 swap send_recv, waits for "
                                "pp[0,1]"),
                      HasSubstr("rank 1 lane compute is stuck at #0 swap send_recv")));
  }
}

TEST(Replay, AnAwaitThatNobodySignalsIsADeadlock) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) { rank.await(Fence{9}, Lane::tp); }};
  EXPECT_THROW((void)replay(recorded.ops, simple_cost), Error);
}

TEST(Replay, ADroppedCallIsADeadlock) {
  Recorded recorded{Mesh{{.tp = 3}}, [](Rank& rank) {
                      Words w{rank};
                      w.reduce(Axis::tp, Lane::tp);
                      w.reduce(Axis::tp, Lane::tp);
                    }};
  recorded.ops[1].pop_back();
  EXPECT_THROW((void)replay(recorded.ops, simple_cost), Error);
}

/// Three ranks with lanes of all kinds, for what must hold of any program.
void busy_program(Rank& rank) {
  Words w{rank};
  for (int i = 0; i < 5; ++i) {
    w.work(3 + (7 * i + 5 * rank.id()) % 11);
    rank.order(Lane::compute, Lane::tp);
    w.reduce(Axis::tp, Lane::tp);
    w.work(4);
    if (i % 2 == 0) rank.order(Lane::tp, Lane::compute);
    w.reduce(Axis::tp, Lane::dp);
  }
}

TEST(Replay, TimesAreAccountedAsMeasuredOnesAre) {
  const Recorded recorded{Mesh{{.tp = 3}}, busy_program};
  const Replay run = replay(recorded.ops, simple_cost);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto kernels = kernel_records(recorded.ops[rank], run.ops[rank]);
    const Occupancy expected = occupancy(kernels, {0, run.window_ns});
    EXPECT_EQ(run.times[rank].comp_ns, expected.comp_ns);
    EXPECT_EQ(run.times[rank].comm_ns, expected.comm_ns);
    EXPECT_EQ(run.times[rank].overlapped_ns, expected.overlapped_ns);
    EXPECT_EQ(run.times[rank].exposed_comm_ns, expected.exposed_comm_ns);
    EXPECT_GT(expected.overlapped_ns, 0);
  }
  expect_no_residual(run);
}

/// Times measured in a run, with the waiting in them, replay to the same run.
TEST(Replay, MeasuredTimesGiveTheMeasuredRunBack) {
  const auto pipeline = [](Rank& rank) {
    Words w{rank};
    const int stage = rank.id();
    for (int micro = 0; micro < 4; ++micro) {
      if (stage > 0) w.receive(stage - 1, 4 + micro, Lane::compute);
      w.work(10 + 3 * stage + micro);
      if (stage < 2) w.send(stage + 1, 4 + micro, Lane::compute);
    }
  };
  const Recorded tp{Mesh{{.tp = 3}}, busy_program}, pp{Mesh{{.pp = 3}}, pipeline};
  for (const Recorded* recorded : {&tp, &pp}) {
    const Replay run = replay(recorded->ops, simple_cost);
    std::vector<std::vector<KernelRecord>> kernels;
    for (std::size_t rank = 0; rank < 3; ++rank)
      kernels.push_back(kernel_records(recorded->ops[rank], run.ops[rank]));
    const Replay again = replay(recorded->ops, measured_cost(recorded->ops, kernels));
    EXPECT_EQ(again.window_ns, run.window_ns);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ends(again, rank), ends(run, rank));
  }
}

}  // namespace
}  // namespace shardmark::test
