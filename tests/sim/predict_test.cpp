#include "sim/predict.hpp"

#include "core/error.hpp"
#include "layers/recording.hpp"
#include "sim/cost_comm.hpp"
#include "sim/cost_compute.hpp"
#include "tests/record/recorded.hpp"
#include "tests/sim/machines.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace shardmark::test {
namespace {

/// One transformer block on tp ranks.
std::vector<Recording> record_block(int tp, DType dtype) {
  std::vector<Recording> recordings;
  for (int member = 0; member < tp; ++member) {
    LayerConfig config;
    config.shape.hidden = 768;
    config.shape.head_dim = 64;
    config.shape.heads = 12;
    config.shape.kv_heads = 12;
    config.shape.ffn = 3072;
    config.shape.seq = 128;
    config.dtype = dtype;
    config.parallel.tp = {Axis::tp, 0, 1, tp, member};
    recordings.push_back(record_program(config, Phase::step, 1));
  }
  return recordings;
}

std::vector<std::vector<OpRecord>> lists_of(const std::vector<Recording>& recordings) {
  std::vector<std::vector<OpRecord>> lists;
  for (const Recording& recording : recordings) lists.push_back(recording.ops);
  return lists;
}

/// Without overlap a step is the sum of its ops.
TEST(Predict, ABlockTakesTheSumOfItsOps) {
  for (const int tp : {1, 2, 3}) {
    const auto recordings = record_block(tp, DType::f32);
    const auto lists = lists_of(recordings);
    const Machine machine = round_machine(2);
    const Prediction prediction = predict(lists, machine);
    double comp_us = 0, comm_us = 0;
    for (const OpRecord& record : lists[0]) {
      if (kind_of(record.op) == OpKind::compute)
        comp_us += std::round(1e3 * compute_us(machine, record.op)) / 1e3;
      if (kind_of(record.op) == OpKind::communication)
        comm_us += std::round(1e3 * communication_us(machine, record.op)) / 1e3;
    }
    EXPECT_NEAR(prediction.window_us(), comp_us + comm_us, 1e-6) << "tp " << tp;
    for (int rank = 0; rank < tp; ++rank) {
      const RankTime& time = prediction.time_of(rank);
      EXPECT_EQ(time.residual_ns(prediction.replay.window_ns), 0);
      EXPECT_NEAR(static_cast<double>(time.exposed_comm_ns) / 1e3, comm_us, 1e-6);
      EXPECT_EQ(time.wait_ns, 0) << "rank " << rank << " of " << tp;
    }
    EXPECT_EQ(comm_us > 0, tp > 1);
  }
}

/// Three works, each with an all-reduce that may run beside the next.
TEST(Predict, WhereOneCoreMovesTheBytesNothingOverlaps) {
  const Recorded recorded{Mesh{{.tp = 3}}, [](Rank& rank) {
                            const Buffer x =
                                rank.allocate({1'000'000}, DType::f32, Category::activation);
                            for (int i = 0; i < 3; ++i) {
                              add(rank, x.tensor(), x.tensor(), x.tensor());
                              rank.order(Lane::compute, Lane::tp);
                              all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
                            }
                          }};
  Machine machine = round_machine(3);
  const double comp_us = 3 * 13, comm_us = 3 * (4 * 2 + 4. / 3 * 40);
  const Prediction beside = predict(recorded.ops, machine);
  EXPECT_NEAR(beside.window_us(), 13 + comm_us, 1e-2);
  EXPECT_NEAR(static_cast<double>(beside.time_of(1).overlapped_ns) / 1e3, comp_us - 13, 1e-2);
  machine.overlap.value = 0;
  const Prediction in_turn = predict(recorded.ops, machine);
  EXPECT_NEAR(in_turn.window_us(), comp_us + comm_us, 1e-2);
  EXPECT_EQ(in_turn.time_of(1).overlapped_ns, 0);
}

TEST(Predict, TheMachinesThatComeAlongPredictABlock) {
  const auto recordings = record_block(3, DType::bf16);
  double slowest_us = 0;
  for (const char* name : {"h200-sxm-8", "h100-sxm-8", "a100-sxm-8"}) {
    const double time_us = predict(lists_of(recordings), load_machine(name)).window_us();
    EXPECT_GE(time_us, slowest_us) << name;
    slowest_us = time_us;
  }
}

}  // namespace
}  // namespace shardmark::test
