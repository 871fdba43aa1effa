#include "core/cpu/backend.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "tests/support/backend_conformance.hpp"

#include <gmock/gmock.h>

#include <thread>

namespace shardmark {
namespace {

using conformance::Check;
using conformance::CpuRank;
using testing::AllOf;
using testing::HasSubstr;

class Conformance : public testing::TestWithParam<std::tuple<int, Check>> {};

TEST_P(Conformance, Holds) {
  const auto& [ranks, check] = GetParam();
  run_threads(ranks, check.run);
}

INSTANTIATE_TEST_SUITE_P(CpuThreads, Conformance,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::ValuesIn(conformance::backend_checks)),
                         [](const auto& param) {
                           return std::string{std::get<1>(param.param).name} + "_" +
                                  std::to_string(std::get<0>(param.param));
                         });

template <class Kind>
std::string error_of(int ranks, const RankBody& body) {
  try {
    run_threads(ranks, body);
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CpuBackend, AwaitOfAFenceThatNeverComesIsADeadlockWithPath) {
  EXPECT_THAT(error_of<Error>(1,
                              [](Transport& transport) {
                                CpuRank cpu{transport};
                                const auto scope = cpu.rank.scope("block0");
                                const Fence fence = cpu.rank.signal(Lane::tp);
                                cpu.rank.await(Fence{fence.id + 7}, Lane::compute);
                                cpu.rank.synchronize();
                              }),
              AllOf(HasSubstr("deadlock"), HasSubstr("lane compute at block0: await")));
}

TEST(CpuBackend, ATimeoutNamesLanePathAndSilentRank) {
  const std::string text = error_of<TimeoutError>(2, [](Transport& transport) {
    CpuRank cpu{transport};
    transport.set_wait_policy({.yield = true, .timeout_s = 0.2});
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1500});
      return;
    }
    const Buffer x = cpu.integers({4, 4}, DType::f32, 0);
    const auto scope = cpu.rank.scope("mlp");
    all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
    cpu.rank.synchronize();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("no sign of life from rank 1"),
                          HasSubstr("lane tp at mlp: all_reduce"), HasSubstr("over tp[0,1]")));
}

TEST(CpuBackend, WhatIsInFlightIsWithdrawnWhenARankFails) {
  const std::string text = error_of<Error>(2, [](Transport& transport) {
    CpuRank cpu{transport};
    const Buffer x = cpu.integers({512, 512}, DType::f32, 0);
    all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
    if (transport.rank() == 1) cpu.rank.await(Fence{99}, Lane::compute);
    if (transport.rank() == 0) all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::cp);
    cpu.rank.synchronize();
  });
  EXPECT_THAT(text, HasSubstr("deadlock"));
}

}  // namespace
}  // namespace shardmark
