// Pipelines on threads equal the model on one rank: losses and weight gradients, bitwise where the
// order of sums is the same.

#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/launch.hpp"
#include "layers/check.hpp"
#include "tests/pipeline/programs.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using test::Lowering;
using test::pipeline_case;
using test::PipelineCase;
using test::ScheduleKind;

/// What one rank needs to run.
struct Host {
  explicit Host(Transport& transport) : cpu{transport, arena, kernels} {}
  Arena arena{std::int64_t{1} << 28U};
  Kernels kernels{1, arena};
  ThreadWorld lone_world{1};
  ThreadTransport alone{lone_world, 0};
  CpuBackend cpu;
  CpuBackend serial{alone, arena, kernels};
};

std::vector<CheckResult> check_all(const PipelineCase& c) {
  std::vector<CheckResult> results(static_cast<std::size_t>(c.ranks()));
  run_threads(c.ranks(), [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    Host host{transport};
    const LayerConfig config = c.on(transport.rank());
    connect_all(transport, record_program(config, Phase::step, 1).ops);
    Rank rank{transport.rank(), c.mesh(), host.cpu};
    results[static_cast<std::size_t>(transport.rank())] =
        check_against_serial(rank, config, host.serial, 7);
  });
  return results;
}

void expect_equal_to_serial(const PipelineCase& c, bool bitwise) {
  for (const CheckResult& result : check_all(c)) {
    EXPECT_TRUE(result.pass) << c << ": " << result.problem;
    EXPECT_EQ(result.exact, bitwise) << c;
    EXPECT_TRUE(!bitwise || result.max_abs_err == 0) << c;
  }
}

class AllSchedules : public testing::TestWithParam<int> {};

TEST_P(AllSchedules, EqualOneRank) {
  for (PipelineCase c : test::all_schedules({GetParam()}, {4, 8})) {
    const bool in_order = !c.schedule().is_two_way();
    expect_equal_to_serial(c, in_order);
    c.config.dtype = DType::bf16;
    if (c.schedule().num_micro == 8) expect_equal_to_serial(c, in_order);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, AllSchedules, testing::Values(1, 2, 3, 4));

TEST(PipelineValues, WithTensorAndDataParallelismEqualOneRank) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_v,
                                  ScheduleKind::dualpipe, ScheduleKind::interleaved})
    for (const auto& [tp, dp] : {std::pair{2, 1}, {1, 2}, {2, 2}})
      expect_equal_to_serial(pipeline_case(kind, {.ranks = 2, .micro = 4}, Lowering::split, tp, dp),
                             false);
}

TEST(PipelineValues, OfUnevenStagesAndFewMicroBatchesEqualOneRank) {
  PipelineCase c = pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4});
  set_blocks(c, {1, 3, 2});
  expect_equal_to_serial(c, true);
  c = pipeline_case(ScheduleKind::zb_v, {.ranks = 2, .micro = 5});
  set_blocks(c, {2, 1, 1, 3});
  expect_equal_to_serial(c, true);
  for (const int micro : {1, 2})
    for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
      expect_equal_to_serial(pipeline_case(kind, {.ranks = 4, .micro = micro}), true);
}

TEST(PipelineValues, OfOtherKindsOfModelsEqualOneRank) {
  PipelineCase c = pipeline_case(ScheduleKind::zb_h1, {.ranks = 3, .micro = 4});
  c.config.shape.positions = Positions::learned;
  c.config.shape.mlp = MlpKind::swiglu;
  c.config.shape.norm = NormKind::rms;
  c.config.shape.kv_heads = 2;
  expect_equal_to_serial(c, true);
  c.config.shape.positions = Positions::rotary;
  expect_equal_to_serial(c, true);
}

/// Whether any rank of a pipeline with these steps finds a difference; matching sizes hide it from
/// everything but the values.
TEST(PipelineValues, SwappedMessagesAreCaught) {
  PipelineCase c = pipeline_case(ScheduleKind::gpipe, {.ranks = 3, .micro = 4});
  test::Schedule swapped = c.schedule();
  std::vector<pipeline::Step>& steps = swapped.ranks[0];
  using pipeline::Act;
  std::erase_if(steps, [](const pipeline::Step& step) { return step.action.act == Act::send_F; });
  const auto after_forwards = std::ranges::find(steps, pipeline::Step{{Act::F, 0, 3}, {}}) + 1;
  const auto send = [](int micro) { return pipeline::Step{{Act::send_F, 0, micro}, {}}; };
  steps.insert(after_forwards, {send(1), send(0), send(2), send(3)});
  c.config.pipeline.schedule = std::make_shared<const test::Schedule>(swapped);
  const auto passes = [](const CheckResult& result) { return result.pass; };
  EXPECT_FALSE(std::ranges::all_of(check_all(c), passes));
}

}  // namespace
}  // namespace shardmark
