// Where a pipeline's window goes: hand-made iterations with known answers, and replays.

#include "bench/harness/pipeline_times.hpp"

#include "layers/pipeline/generate.hpp"
#include "layers/pipeline/replay.hpp"
#include "sim/replay.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>

namespace shardmark::bench {
namespace {

using pipeline::Act;
using pipeline::Action;
using test::Recorded;
using testing::HasSubstr;

/// A rank's program: every action in its scope.
struct Words {
  explicit Words(Rank& r) : rank{r}, buffer{r.allocate({8}, DType::f32, Category::activation)} {}
  void work(const std::string& action, int num_ops = 1) {
    const auto step = rank.scope("step");
    const auto scope = rank.scope(action);
    for (int i = 0; i < num_ops; ++i) fill(rank, buffer.tensor(), 0);
  }
  void send(int to, bool forward = true) {
    const Lane lane = forward ? Lane::pp_fwd_send : Lane::pp_bwd_send;
    rank.order(Lane::compute, lane);
    send_recv(rank, buffer.tensor(), to, {}, -1, rank.group(Axis::pp), lane);
  }
  void receive(int from, bool forward = true) {
    const Lane lane = forward ? Lane::pp_fwd_recv : Lane::pp_bwd_recv;
    send_recv(rank, {}, -1, buffer.tensor(), from, rank.group(Axis::pp), lane);
    rank.order(lane, Lane::compute);
  }
  Rank& rank;
  Buffer buffer;
};

/// Writes down when the ops of one kind and lane of a list ran, microseconds.
struct Stamps {
  explicit Stamps(const std::vector<OpRecord>& ops) : list{ops} {}
  /// A kernel of the `op`-th op that is not an ordering.
  Stamps& at(std::size_t op, int start_us, int end_us) {
    std::vector<std::uint32_t> places;
    for (std::uint32_t i = 0; i < list.size(); ++i)
      if (kind_of(list[i].op) != OpKind::ordering) places.push_back(i);
    const OpRecord& record = list[places.at(op)];
    records.push_back({.op_seq = places[op],
                       .lane = record.lane,
                       .kind = kind_of(record.op),
                       .start_ns = start_us * 1000,
                       .end_ns = end_us * 1000});
    return *this;
  }
  [[nodiscard]] RankIteration from(int begin_us, int end_us, int idle_us) const {
    return {begin_us * 1000, end_us * 1000, idle_us * 1000, records};
  }
  const std::vector<OpRecord>& list;
  std::vector<KernelRecord> records;
};

/// One micro-batch over two stages, F 10, B 20, messages 3. Rank 1 enters its window 1 us late and
/// leaves it 2 us early.
struct TwoRanks {
  Recorded recorded{Mesh{{.pp = 2}}, [](Rank& rank) {
                      Words w{rank};
                      if (rank.id() == 0) {
                        w.work("0F0");
                        w.send(1);
                        w.receive(1, false);
                        w.work("0B0");
                      } else {
                        w.receive(0);
                        w.work("1F0");
                        w.work("1B0");
                        w.send(0, false);
                      }
                    }};
  std::vector<RankIteration> ranks{
      Stamps{recorded.ops[0]}.at(0, 2, 12).at(1, 12, 15).at(2, 2, 48).at(3, 48, 68).from(0, 72, 6),
      Stamps{recorded.ops[1]}.at(0, 2, 15).at(1, 15, 25).at(2, 25, 45).at(3, 45, 48).from(1, 70,
                                                                                          23)};
};

TEST(PipelineSplit, TwoRanksByHand) {
  const TwoRanks run;
  const PipelineAnalysis analysis{run.recorded.ops, 2};
  const auto splits = analysis.split(run.ranks);
  ASSERT_EQ(splits.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const PipelineSplit& split = splits[rank];
    EXPECT_DOUBLE_EQ(split.window_us, 72) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.forward_us, 10) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.backward_us, 20) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.compute_us(), 30) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.transfer_us, 6) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.exposed_transfer_us, 6) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.blocked_us, 0) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.bubble_us, 36) << "rank " << rank;
    EXPECT_NEAR(split.residual_us, 0, 1e-9) << "rank " << rank;
    EXPECT_NEAR(split.unexplained_us, 0, 1e-9) << "rank " << rank;
    EXPECT_DOUBLE_EQ(split.start_us, 2) << "rank " << rank;
  }
  EXPECT_DOUBLE_EQ(splits[0].wait_us, 30) << "from the end of its send to the gradient's";
  EXPECT_DOUBLE_EQ(splits[1].wait_us, 10);
  EXPECT_DOUBLE_EQ(splits[0].drain_us, 4);
  EXPECT_DOUBLE_EQ(splits[1].drain_us, 24);
}

/// Kernels of 0.1, 0.2 and 0.3 us, which as doubles add up to more than 0.6.
TEST(PipelineSplit, ARankThatOnlyComputesHasABubbleOfExactlyZero) {
  const Recorded recorded{Mesh{{.pp = 1}}, [](Rank& rank) {
                            Words w{rank};
                            for (const char* action : {"0F0", "0B0", "0F1"}) w.work(action);
                          }};
  RankIteration rank = Stamps{recorded.ops[0]}.at(0, 0, 1).at(1, 1, 3).at(2, 3, 6).from(0, 6, 0);
  rank.end_ns /= 10;
  for (KernelRecord& record : rank.records) {
    record.start_ns /= 10;
    record.end_ns /= 10;
  }
  const std::vector<RankIteration> ranks{rank};
  const PipelineSplit split = PipelineAnalysis{recorded.ops, 1}.split(ranks).front();
  EXPECT_EQ(split.bubble_us, 0);
  EXPECT_EQ(split.residual_us, 0);
  EXPECT_EQ(split.unexplained_us, 0);
}

/// 10 + 3 + 10 + 20 + 3 + 20 = 66, of which each rank computes 30 and moves messages for 6.
TEST(PipelineTimes, TheoryReplaysTheSameOpTimes) {
  const TwoRanks run;
  PipelineAnalysis analysis{run.recorded.ops, 2};
  for (int i = 0; i < 3; ++i) analysis.add(run.ranks);
  const PipelineTimes times = analysis.result();
  EXPECT_EQ(times.problem, "");
  EXPECT_EQ(times.iterations, 3);
  EXPECT_DOUBLE_EQ(times.measured.of_total, 36.0 / 72);
  EXPECT_DOUBLE_EQ(times.measured.of_ideal, 36.0 / 30);
  EXPECT_DOUBLE_EQ(times.replayed.mean.window_us, 66);
  EXPECT_DOUBLE_EQ(times.replayed.of_total, 30.0 / 66);
  EXPECT_DOUBLE_EQ(times.replayed.of_ideal, 30.0 / 30);
  EXPECT_NEAR(times.replay_error_pct, 100 * (66.0 / 72 - 1), 1e-9);
  ASSERT_EQ(times.stages.size(), 2U);
  for (const StageTime& stage : times.stages) {
    EXPECT_DOUBLE_EQ(stage.forward_us, 10);
    EXPECT_DOUBLE_EQ(stage.backward_us, 20);
  }
}

/// As the ranks of tp, and the copies of the model, do: the same micro-batches of a stage on each.
TEST(PipelineTimes, AStageOnSeveralRanksHasTheirMean) {
  const Recorded recorded{Mesh{{.dp = 3}}, [](Rank& rank) {
                            Words w{rank};
                            for (const char* action : {"0F0", "0B0", "0F1", "0B1"}) w.work(action);
                          }};
  std::vector<RankIteration> ranks;
  for (const int f : {5, 10, 15})
    ranks.push_back(Stamps{recorded.ops[ranks.size()]}
                        .at(0, 0, f)
                        .at(1, f, f + 20)
                        .at(2, f + 20, 2 * f + 20)
                        .at(3, 2 * f + 20, 2 * f + 40)
                        .from(0, 2 * f + 40, 0));
  PipelineAnalysis analysis{recorded.ops, 1};
  analysis.add(ranks);
  const StageTime stage = analysis.result().stages.at(0);
  EXPECT_DOUBLE_EQ(stage.forward_us, 10);
  EXPECT_DOUBLE_EQ(stage.backward_us, 20);
}

/// Rank 0 computes and looks after its message only then; it was there long before.
TEST(PipelineTimes, ASenderThatNoticesLateDelaysNobodyInTheory) {
  TwoRanks run;
  run.ranks[0].records[1].end_ns = 40000;
  PipelineAnalysis analysis{run.recorded.ops, 2};
  analysis.add(run.ranks);
  EXPECT_DOUBLE_EQ(analysis.result().replayed.mean.window_us, 66);
}

TEST(PipelineTimes, AreMediansOverIterationsOfMeansOverRanks) {
  const TwoRanks run;
  PipelineAnalysis analysis{run.recorded.ops, 2};
  for (const int later_us : {0, 8, 1000}) {  // the closing barrier
    auto ranks = run.ranks;
    ranks[0].end_ns += later_us * 1000;
    ranks[0].idle_ns += later_us * 1000;
    analysis.add(ranks);
  }
  const PipelineTimes times = analysis.result();
  EXPECT_EQ(times.problem, "");
  EXPECT_DOUBLE_EQ(times.measured.mean.window_us, 80);
  EXPECT_DOUBLE_EQ(times.measured.mean.bubble_us, 44);
  EXPECT_DOUBLE_EQ(times.measured.mean.drain_us, (12.0 + 32) / 2);
  EXPECT_DOUBLE_EQ(times.ranks[1].drain_us, 32);
  EXPECT_DOUBLE_EQ(times.replayed.mean.window_us, 66) << "the barrier is no operation";
}

/// The middle of three ranks sends before its successor has come, looks for messages between the
/// tiles of a kernel, hides a message behind compute, and reduces something at the end.
TEST(PipelineSplit, ThreeRanksByHand) {
  const Recorded recorded{Mesh{{.pp = 3}}, [](Rank& rank) {
                            Words w{rank};
                            const auto reduce = [&] {
                              rank.order(Lane::compute, Lane::dp);
                              all_reduce(rank, w.buffer.tensor(), rank.group(Axis::pp), Lane::dp);
                            };
                            if (rank.id() == 0) {
                              w.work("0F0");
                              w.send(1);
                              w.work("0F1");
                              w.send(1);
                            } else if (rank.id() == 1) {
                              w.receive(0);
                              w.work("1F0");
                              w.receive(0);
                              w.send(2);
                              w.work("1F1");
                            } else {
                              w.work("2W7");
                              w.receive(1);
                            }
                            reduce();
                          }};
  const std::vector<RankIteration> ranks{
      Stamps{recorded.ops[0]}
          .at(0, 0, 10)
          .at(1, 10, 12)
          .at(2, 12, 30)
          .at(3, 30, 34)
          .at(4, 34, 90)
          .from(0, 90, 0),
      Stamps{recorded.ops[1]}
          .at(0, 0, 12)  // wait 10, transfer 2
          .at(1, 12, 16)
          .at(1, 17, 22)  // 1F0 in two tiles, between which the next receive is open
          .at(2, 12, 34)  // wait until 30, then transfer 4
          .at(3, 34, 45)  // send: rank 2 comes at 40
          .at(4, 42, 70)  // 1F1 hides 3 of its transfer
          .at(5, 70, 90)
          .from(0, 90, 0),
      Stamps{recorded.ops[2]}.at(0, 5, 40).at(1, 40, 45).at(2, 45, 90).from(0, 90, 5)};
  const PipelineAnalysis analysis{recorded.ops, 3};
  const auto splits = analysis.split(ranks);
  const PipelineSplit& middle = splits[1];
  EXPECT_DOUBLE_EQ(middle.forward_us, 4 + 5 + 28);
  EXPECT_DOUBLE_EQ(middle.gap_us, 1);
  EXPECT_DOUBLE_EQ(middle.wait_us, 10 + 8);
  EXPECT_DOUBLE_EQ(middle.transfer_us, 2 + 4 + 5);
  EXPECT_DOUBLE_EQ(middle.blocked_us, 6);
  EXPECT_DOUBLE_EQ(middle.exposed_transfer_us, 2 + 4 + 2);
  EXPECT_DOUBLE_EQ(middle.collective_us, 20);
  EXPECT_DOUBLE_EQ(middle.bubble_us, 90 - 37 - 8 - 20);
  EXPECT_DOUBLE_EQ(middle.unexplained_us, 1) << "looking for messages";
  EXPECT_DOUBLE_EQ(splits[2].weight_us, 35);
  EXPECT_DOUBLE_EQ(splits[2].start_us, 5);
  EXPECT_DOUBLE_EQ(splits[2].bubble_us, 5);
  EXPECT_DOUBLE_EQ(splits[0].collective_us, 56);
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_NEAR(splits[rank].residual_us, 0, 1e-9) << "rank " << rank;
}

std::string problem_of(const TwoRanks& run) {
  PipelineAnalysis analysis{run.recorded.ops, 2};
  analysis.add(run.ranks);
  return analysis.result().problem;
}

TEST(PipelineIdentity, ALostOrDoubledRecordAndWrongIdleTimeAreSeen) {
  EXPECT_EQ(problem_of({}), "");
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t kernel = 0; kernel < 4; ++kernel) {
      TwoRanks lost, doubled;
      auto& records = lost.ranks[rank].records;
      const KernelRecord& twice = doubled.ranks[rank].records[kernel];
      const bool computes = twice.kind == OpKind::compute;
      records.erase(records.begin() + static_cast<std::ptrdiff_t>(kernel));
      EXPECT_NE(problem_of(lost), "") << "rank " << rank << " kernel " << kernel;
      if (!computes) continue;
      doubled.ranks[rank].records.push_back(KernelRecord{twice});
      EXPECT_THAT(problem_of(doubled), HasSubstr("of 72 us unexplained"))
          << "rank " << rank << " kernel " << kernel;
    }
  TwoRanks idle;
  idle.ranks[1].idle_ns += 100;
  EXPECT_THAT(problem_of(idle), HasSubstr("iteration 0, rank 1: the parts"));
}

TEST(PipelineIdentity, AKernelLostBehindAnOpenReceiveIsNamed) {
  TwoRanks run;
  auto& records = run.ranks[0].records;
  records.erase(records.begin());  // 0F0, while its receive is open
  EXPECT_THAT(problem_of(run), HasSubstr("rank 0"));
  EXPECT_THAT(problem_of(run), HasSubstr("step/0F0 fill left no kernel"));
}

TEST(PipelineAnalysis, AMessageWithoutItsOtherEndIsRefused) {
  TwoRanks run;
  auto lists = run.recorded.ops;
  lists[1].pop_back();
  EXPECT_ANY_THROW((PipelineAnalysis{lists, 2}));
}

TEST(ActionOfPath, IsTheFirstComputeAction) {
  EXPECT_EQ(action_of("step/12F3/block0/mlp"), (Action{Act::F, 12, 3}));
  EXPECT_EQ(action_of("step/0I10"), (Action{Act::I, 0, 10}));
  for (const char* path : {"step", "step/1SEND_F3", "step/block0/mlp", "step/F3", "step/1F", ""})
    EXPECT_EQ(action_of(path), std::nullopt) << path;
}

/// A rank of a linear pipeline follows its list; messages take no time.
void follow(Rank& rank, const pipeline::Schedule& schedule) {
  Words w{rank};
  const int stage = rank.id(), last = schedule.num_stages - 1;
  for (const pipeline::Step& step : schedule.ranks[static_cast<std::size_t>(stage)]) {
    const Act act = step.action.act;
    const bool forward = act == Act::F;
    const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
    if (act != Act::W && from >= 0 && from <= last) w.receive(from, forward);
    w.work(to_text(step.action));
    if (act != Act::W && to >= 0 && to <= last) w.send(to, forward);
  }
}

/// Units of time: F = I = W = 1, B = 2.
PipelineTimes unit_times(const Recorded& recorded, int num_stages) {
  constexpr std::int64_t unit_ns = 1000;
  const Replay run = replay(recorded.ops, [](int, const OpRecord& record) -> std::int64_t {
    const auto action = action_of(*record.path);
    if (!action || kind_of(record.op) != OpKind::compute) return 0;
    return action->act == Act::B ? 2 * unit_ns : unit_ns;
  });
  std::vector<RankIteration> ranks;
  for (std::size_t rank = 0; rank < recorded.ops.size(); ++rank)
    ranks.push_back({0, run.window_ns, run.times[rank].idle_ns,
                     kernel_records(recorded.ops[rank], run.ops[rank])});
  PipelineAnalysis analysis{recorded.ops, num_stages};
  analysis.add(ranks);
  return analysis.result();
}

/// METRICS 1.4: gpipe and 1f1b (p - 1)(F + B), zb-h1 (p - 1)(F + B - 2W).
TEST(PipelineTimes, UnitTimesGiveTheFormulas) {
  using pipeline::ScheduleKind;
  struct Size {
    int stages, micro;
  };
  for (const auto& [p, m] : std::vector<Size>{{2, 2}, {2, 8}, {3, 3}, {3, 7}, {4, 8}, {7, 9}})
    for (const ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
      const auto schedule = generate(kind, {.ranks = p, .micro = m});
      const Recorded recorded{Mesh{{.pp = p}}, [&](Rank& rank) { follow(rank, schedule); }};
      const PipelineTimes times = unit_times(recorded, p);
      const double bubble_us = kind == ScheduleKind::zb_h1 ? p - 1 : 3 * (p - 1);
      for (const Bubble* bubble : {&times.measured, &times.replayed}) {
        EXPECT_DOUBLE_EQ(bubble->mean.bubble_us, bubble_us) << schedule.name << p << ' ' << m;
        EXPECT_DOUBLE_EQ(bubble->of_ideal, bubble_us / (3 * m)) << schedule.name << p << ' ' << m;
        EXPECT_DOUBLE_EQ(bubble->of_total, bubble_us / (3 * m + bubble_us))
            << schedule.name << p << ' ' << m;
      }
      EXPECT_NEAR(times.replay_error_pct, 0, 1e-9);
      EXPECT_EQ(times.problem, "");
      const auto& uses = pipeline::replay(schedule).ranks;
      for (std::size_t rank = 0; rank < uses.size(); ++rank)
        EXPECT_EQ(times.peak_in_flight[rank], uses[rank].peak_in_flight)
            << schedule.name << p << ' ' << m << " rank " << rank;
    }
}

/// Between 0F1 and 0W0 two are held; a micro-batch that begins when another ends is not beside it,
/// and a forward without a backward holds nothing after it.
TEST(PeakInFlight, CountsFromForwardsToTheEndOfTheirBackwards) {
  const Recorded recorded{Mesh{{}}, [](Rank& rank) {
                            Words w{rank};
                            for (const char* action : {"0F0", "0F1", "0I0", "0W0", "0B1", "0F2"})
                              w.work(action);
                          }};
  Stamps stamps{recorded.ops[0]};
  for (int i = 0; i < 6; ++i) stamps.at(static_cast<std::size_t>(i), 10 * i, 10 * i + 10);
  PipelineAnalysis analysis{recorded.ops, 1};
  analysis.add(std::array{stamps.from(0, 60, 0)});
  EXPECT_EQ(analysis.result().peak_in_flight, std::vector{2});
  stamps.records[5].start_ns -= 1;  // 0F2 before the end of 0B1
  analysis.add(std::array{stamps.from(0, 60, 0)});
  EXPECT_EQ(analysis.result().peak_in_flight, std::vector{2}) << "0F0 ended before";
  stamps.records[5].start_ns = 39'000;  // and before that of 0W0
  analysis.add(std::array{stamps.from(0, 60, 0)});
  EXPECT_EQ(analysis.result().peak_in_flight, std::vector{3}) << "the most of all iterations";
}

}  // namespace
}  // namespace shardmark::bench
