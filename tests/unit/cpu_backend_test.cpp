#include "core/cpu/backend.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "tests/support/backend_conformance.hpp"
#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

namespace shardmark {
namespace {

using conformance::Check;
using conformance::CpuRank;
using test::error_of;
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

TEST(CpuBackend, ErrorsOfCommunicationNameTheOpOnce) {
  const auto text = [](bool beside_compute, bool progress_thread = false) {
    return error_of<Error>(2, [&](Transport& transport) {
      CpuRank cpu{transport};
      cpu.backend.set_progress_thread(progress_thread);
      const Buffer x = cpu.integers({transport.rank() + 1, 4}, DType::f32, 0);
      const Buffer a = cpu.integers({768, 768}, DType::f32, 1);
      const Buffer c = cpu.integers({768, 768}, DType::f32, 2);
      const auto scope = cpu.rank.scope("mlp");
      all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
      if (beside_compute) {
        const auto inner = cpu.rank.scope("up");
        for (int i = 0; i < 20; ++i) matmul(cpu.rank, a.tensor(), a.tensor(), c.tensor());
      }
      cpu.rank.synchronize();
    });
  };
  EXPECT_THAT(text(false), testing::StartsWith("mlp: all_reduce: rank 1 called"));
  EXPECT_THAT(text(true), testing::StartsWith("mlp: all_reduce: rank 1 called"));
  EXPECT_THAT(text(true, true), testing::StartsWith("mlp: all_reduce: rank 1 called"));
}

/// What a test of KernelSinks sees; not locked, as none needs to be.
struct Kept final : KernelSink {
  void on_begin(const OpRecord&) override { ++num_begun; }
  void on_end(const OpRecord&) override { ++num_ended; }
  void on_kernel(const KernelRecord& record) override { kernels.push_back(record); }
  int num_begun{0}, num_ended{0};
  std::vector<KernelRecord> kernels;
};

/// Several calls in turn beside one product, checked; how many of them ended before it did.
std::int64_t calls_ended_inside_a_product(CpuRank& cpu, Transport& transport) {
  constexpr int rounds = 8;
  const Buffer x = cpu.integers({64}, DType::f32, transport.rank());
  const Buffer a = cpu.integers({1536, 1536}, DType::f32, 1);
  const Buffer c = cpu.integers({1536, 1536}, DType::f32, 2);
  cpu.backend.set_progress_thread(true);
  Kept kept;
  cpu.backend.set_kernel_sink(&kept);
  for (int i = 0; i < rounds; ++i) all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
  matmul(cpu.rank, a.tensor(), a.tensor(), c.tensor());
  cpu.rank.synchronize();
  cpu.backend.set_kernel_sink(nullptr);
  cpu.backend.set_progress_thread(false);
  EXPECT_EQ(kept.num_begun, rounds + 1);
  EXPECT_EQ(kept.num_ended, rounds + 1);
  const auto product = std::ranges::find(kept.kernels, Lane::compute, &KernelRecord::lane);
  if (product == kept.kernels.end()) {
    ADD_FAILURE() << "no product";
    return 0;
  }
  EXPECT_EQ(std::ranges::count(kept.kernels, Lane::compute, &KernelRecord::lane), 1) << "in tiles";
  const auto ended_inside = std::ranges::count_if(kept.kernels, [&](const KernelRecord& kernel) {
    return kernel.lane == Lane::tp && kernel.end_ns < product->end_ns;
  });
  const ExecutorTimes& times = cpu.backend.times();
  EXPECT_LT(times.idle_ns, (times.end_ns - times.begin_ns) / 10);
  cpu.expect(x.tensor(), "sums of sums", [&](std::int64_t i) {
    double sum = 0;
    for (int rank = 0; rank < transport.size(); ++rank) sum += conformance::value_at(rank, i) / 4;
    return sum * std::pow(transport.size(), rounds - 1);
  });
  return ended_inside;
}

/// Only the progress thread can end calls while a product runs. A busy machine may not give it the
/// core in time, so a few attempts are allowed.
TEST(CpuBackend, AProgressThreadMovesCallsInsideAnOp) {
  run_threads(3, [](Transport& transport) {
    CpuRank cpu{transport};
    transport.set_wait_policy({.yield = true});
    double most = 0;  // of any rank
    for (int attempt = 0; attempt < 100 && most < 2; ++attempt)
      most = transport.maximum(static_cast<double>(calls_ended_inside_a_product(cpu, transport)));
    EXPECT_GE(most, 2);
  });
}

/// One rank; `start` fails, or what is in flight does, but only for the progress thread.
struct Broken final : Transport {
  Broken(Transport& its_real, bool its_at_start)
      : Transport{0, 1}, real{its_real}, at_start{its_at_start} {}
  [[nodiscard]] std::string_view name() const override { return "broken"; }
  void connect(const Group&, Lane) override {}
  void start(const Op&, Lane) override {
    if (at_start) throw PeerError{"the cable is out"};
  }
  [[nodiscard]] bool test(Lane) override {
    if (std::this_thread::get_id() != home) throw PeerError{"the cable is out"};
    return false;
  }
  [[nodiscard]] const std::vector<Endpoint>& endpoints() const override { return real.endpoints(); }
  [[nodiscard]] std::string find_dead_peer() override { return {}; }
  [[nodiscard]] std::string give_up() override { return {}; }
  [[noreturn]] void abort(int code) override { std::_Exit(code); }
  void start_exchange(std::span<const std::byte>, std::span<std::byte>) override {}
  [[nodiscard]] bool test_exchange() override { return true; }
  Transport& real;
  bool at_start;
  std::thread::id home{std::this_thread::get_id()};
};

TEST(CpuBackend, KeepsTheTypeOfAnErrorOfCommunication) {
  run_threads(1, [](Transport& transport) {
    Broken broken{transport, true};
    CpuRank cpu{broken};
    const Buffer x = cpu.integers({4}, DType::f32, 0);
    all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
    EXPECT_THAT([&] { cpu.rank.synchronize(); },
                testing::ThrowsMessage<PeerError>("-: all_reduce: the cable is out"));
  });
}

TEST(CpuBackend, AnErrorOfTheProgressThreadComesWithItsOpAndType) {
  run_threads(1, [](Transport& transport) {
    Broken broken{transport, false};
    broken.set_wait_policy({.timeout_s = 20});
    CpuRank cpu{broken};
    const Buffer x = cpu.integers({4}, DType::f32, 0);
    const Buffer a = cpu.integers({512, 512}, DType::f32, 1);
    const Buffer c = cpu.integers({512, 512}, DType::f32, 2);
    cpu.backend.set_progress_thread(true);
    const auto scope = cpu.rank.scope("head");
    all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
    const auto inner = cpu.rank.scope("product");
    for (int i = 0; i < 50; ++i) matmul(cpu.rank, a.tensor(), a.tensor(), c.tensor());
    EXPECT_THAT([&] { cpu.rank.synchronize(); },
                testing::ThrowsMessage<PeerError>("head: all_reduce: the cable is out"));
    fill(cpu.rank, c.tensor(), 1.0F);  // the thread is there for what comes next
    cpu.rank.synchronize();
  });
}

TEST(CpuBackend, ASecondRankContinuesTheFences) {
  run_threads(1, [](Transport& transport) {
    CpuRank cpu{transport};
    cpu.rank.await(cpu.rank.signal(Lane::tp), Lane::compute);
    cpu.rank.synchronize();
    {
      Rank second{0, cpu.mesh, cpu.backend};
      const Fence fence = second.signal(Lane::tp);
      EXPECT_EQ(fence.id, 2U);
      second.await(fence, Lane::compute);
      second.synchronize();
    }
    // The first one's numbers are used up.
    EXPECT_THAT([&] { (void)cpu.rank.signal(Lane::tp); },
                testing::ThrowsMessage<Error>(HasSubstr("fence 2 is below 3")));
  });
}

using CpuBackendDeathTest = testing::Test;
TEST(CpuBackendDeathTest, ARankThatHangsAloneIsNamed) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(run_threads(1,
                          [](Transport& transport) {
                            CpuRank cpu{transport};
                            transport.set_wait_policy({.yield = true, .timeout_s = 0.2});
                            const Buffer x = cpu.integers({4}, DType::f32, 0);
                            const auto scope = cpu.rank.scope("mlp");
                            fill(cpu.rank, x.tensor(), 1.0F);
                            for (;;) std::this_thread::sleep_for(std::chrono::hours{1});
                          }),
              testing::ExitedWithCode(1),
              "rank 0 .*: watchdog: lane compute at mlp: fill #0 has not ended for 0.2 s");
}

TEST(CpuBackend, ARankAtRestMayTakeItsTime) {
  run_threads(1, [](Transport& transport) {
    CpuRank cpu{transport};
    transport.set_wait_policy({.yield = true, .timeout_s = 0.1});
    const Buffer x = cpu.integers({4}, DType::f32, 0);
    fill(cpu.rank, x.tensor(), 1.0F);
    cpu.rank.synchronize();
    std::this_thread::sleep_for(std::chrono::milliseconds{1300});
  });
}

}  // namespace
}  // namespace shardmark
