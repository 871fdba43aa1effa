// Communication of a CUDA backend through the host: staged, and by a transport that takes device
// addresses. The device runs its streams in a random order of those that events allow.

#include "core/cpu/transport_threads.hpp"
#include "core/cuda/backend.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "tests/cuda/fake_device.hpp"
#include "tests/support/backend_conformance.hpp"
#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace shardmark::cuda {
namespace {

using conformance::Check;
using test::error_of;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

unsigned next_seed() {
  static std::atomic<unsigned> seed{0};
  return ++seed;
}

template <Path path>
struct FakeGpu {
  explicit FakeGpu(Transport& transport) : backend{device, transport, {.path = path}} {}
  FakeDevice device{next_seed()};
  CudaBackend backend;
};
using StagedRank = conformance::RankOn<FakeGpu<Path::staged>>;
using DirectRank = conformance::RankOn<FakeGpu<Path::mpi_cuda>>;

class Conformance : public testing::TestWithParam<std::tuple<int, Check>> {};
TEST_P(Conformance, Holds) {
  const auto& [ranks, check] = GetParam();
  for (int i = 0; i < 5; ++i) run_threads(ranks, check.run);
}
std::string name_of_case(const testing::TestParamInfo<std::tuple<int, Check>>& info) {
  return std::string{std::get<1>(info.param).name} + "_" + std::to_string(std::get<0>(info.param));
}
INSTANTIATE_TEST_SUITE_P(
    Staged, Conformance,
    testing::Combine(testing::Values(1, 2, 3, 4),
                     testing::ValuesIn(conformance::backend_checks_of<StagedRank>)),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    MpiCuda, Conformance,
    testing::Combine(testing::Values(1, 2, 3),
                     testing::ValuesIn(conformance::backend_checks_of<DirectRank>)),
    name_of_case);

/// A transport whose every call goes through a GPU to the real one.
class ThroughGpu final : public Transport {
 public:
  explicit ThroughGpu(Transport& real)
      : Transport{real.rank(), real.size()}, real_{real}, gpu_{real} {}
  [[nodiscard]] std::string_view name() const override { return real_.name(); }
  void connect(const Group& group, Lane lane) override { real_.connect(group, lane); }
  void start(const Op& op, Lane lane) override { gpu_.backend.execute({0, lane, &path_, op}); }
  [[nodiscard]] bool test(Lane) override {
    gpu_.backend.synchronize();
    return true;
  }
  [[nodiscard]] const std::vector<Endpoint>& endpoints() const override {
    return real_.endpoints();
  }
  [[nodiscard]] std::string find_dead_peer() override { return real_.find_dead_peer(); }
  [[nodiscard]] std::string give_up() override { return real_.give_up(); }
  [[noreturn]] void abort(int code) override {
    real_.abort(code);
    std::_Exit(code);  // the compiler does not see that the above does not come back
  }

 private:
  void start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const std::vector<std::byte> got = real_.exchange(mine);
    std::ranges::copy(got, all.begin());
  }
  [[nodiscard]] bool test_exchange() override { return true; }

  Transport& real_;
  FakeGpu<Path::staged> gpu_;
  std::string path_;
};

/// The transports' checks of collectives: all dtypes, reductions and roots, in and out of place.
TEST(Staged, EveryCollectiveIsExact) {
  for (const int ranks : {1, 2, 3})
    run_threads(ranks, [](Transport& transport) {
      ThroughGpu through{transport};
      for (const Check& check : conformance::checks)
        if (std::string_view{check.name}.ends_with("_exact")) {
          SCOPED_TRACE(check.name);
          check.run(through);
        }
    });
}

Buffer filled(StagedRank& gpu, float value) {
  Buffer buffer = gpu.rank.allocate({8, 8}, DType::f32, Category::activation);
  fill(gpu.rank, buffer.tensor(), value);
  return buffer;
}
std::vector<float> values_of(StagedRank& gpu, const Buffer& buffer) {
  std::vector<float> values(static_cast<std::size_t>(buffer.tensor().numel()));
  gpu.backend.read(buffer.tensor(), values.data());
  return values;
}

/// Without its fence the second lane runs ahead of the communication that is held back.
TEST(Staged, OnlyFencesHoldBackOtherLanes) {
  int num_early = 0;
  for (const bool ordered : {true, false})
    for (int i = 0; i < 20; ++i)
      run_threads(2, [&](Transport& transport) {
        StagedRank gpu{transport};
        const Buffer x = filled(gpu, 1), y = filled(gpu, 0);
        gpu.rank.order(Lane::compute, Lane::tp);
        gpu.rank.order(Lane::compute, Lane::copy);
        all_reduce(gpu.rank, x.tensor(), gpu.tp, Lane::tp);
        if (ordered) gpu.rank.order(Lane::tp, Lane::copy);
        gpu.rank.submit(Copy{x.tensor(), y.tensor()}, Lane::copy);
        gpu.rank.synchronize();
        const std::vector<float> values = values_of(gpu, y);
        if (ordered) {
          EXPECT_THAT(values, Each(2));
        } else if (transport.rank() == 0 && values.front() != 2) {
          ++num_early;
        }
      });
  EXPECT_GT(num_early, 5);
}

/// Memory that is given back while an op that uses it is held back stays until that has run.
TEST(Staged, MemoryOfHeldOpsStays) {
  run_threads(2, [&](Transport& transport) {
    StagedRank gpu{transport};
    for (int i = 0; i < 20; ++i) {
      const Buffer y = filled(gpu, 0);
      {
        const Buffer x = filled(gpu, 3);
        gpu.rank.order(Lane::compute, Lane::tp);
        all_reduce(gpu.rank, x.tensor(), gpu.tp, Lane::tp);
        gpu.rank.submit(Copy{x.tensor(), y.tensor()}, Lane::tp);
      }
      EXPECT_THAT(values_of(gpu, y), Each(6));
    }
  });
}

TEST(Staged, EverythingIsGivenBack) {
  run_threads(2, [&](Transport& transport) {
    FakeDevice device{7};
    {
      CudaBackend backend{device, transport, {.path = Path::staged}};
      const Group group = conformance::connected_world(transport);
      Rank rank{transport.rank(), Mesh{{.tp = 2}}, backend};
      for (const std::int64_t n : {100, 10000, 1000}) {
        const Buffer x = rank.allocate({n}, DType::f32, Category::activation);
        all_reduce(rank, x.tensor(), group, Lane::tp);
        rank.synchronize();
        EXPECT_EQ(device.num_host_blocks, 1) << "outgrown blocks go, the last one stays";
      }
    }
    EXPECT_EQ(device.num_host_blocks, 0);
    EXPECT_EQ(device.num_allocated, 0);
  });
}

struct Kept final : KernelSink {
  void on_begin(const OpRecord&) override { ++num_begun; }
  void on_end(const OpRecord&) override { ++num_ended; }
  void on_kernel(const KernelRecord& record) override { kernels.push_back(record); }
  int num_begun{0}, num_ended{0};
  std::vector<KernelRecord> kernels;
};

/// Counts what it is asked, and has one kernel for every op.
struct FakeTimer final : KernelTimer {
  void before_op(const OpRecord& record) override {
    if (ops.empty() || ops.back().op_seq != record.seq)
      ops.push_back({record.seq, record.lane, kind_of(record.op), "fake", now_ns(), now_ns()});
  }
  void after_op(const OpRecord&) override { ops.back().end_ns = now_ns(); }
  void collect(KernelSink& sink) override {
    for (const KernelRecord& op : ops) sink.on_kernel(op);
    ops.clear();
  }
  [[nodiscard]] std::string_view name() const override { return "fake"; }
  static std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::vector<KernelRecord> ops;
};

/// Every op is seen once, inside of the window, and idle time is what is left of it.
TEST(CudaTimes, EveryOpHasItsTimeInTheWindow) {
  for (const bool with_timer : {false, true})
    run_threads(3, [&](Transport& transport) {
      FakeDevice device{next_seed()};
      FakeTimer timer;
      KernelTimer* in_use = with_timer ? &timer : nullptr;
      CudaBackend backend{device, transport, {.path = Path::staged, .timer = &in_use}};
      const Group group = conformance::connected_world(transport);
      Rank rank{transport.rank(), Mesh{{.tp = 3}}, backend};
      const Buffer x = rank.allocate({64}, DType::f32, Category::activation);
      rank.synchronize();
      EXPECT_EQ(device.num_timed_marks, 0) << "nobody wants times";
      Kept kept;
      backend.set_kernel_sink(&kept);
      const double bytes = backend.bytes_started();
      fill(rank, x.tensor(), 1);                      // 0
      rank.order(Lane::compute, Lane::tp);            // 1, 2
      all_reduce(rank, x.tensor(), group, Lane::tp);  // 3
      rank.submit(Divide{x.tensor(), 3}, Lane::tp);   // 4
      rank.order(Lane::tp, Lane::compute);            // 5, 6
      add(rank, x.tensor(), x.tensor(), x.tensor());  // 7
      rank.synchronize();
      backend.set_kernel_sink(nullptr);
      std::set<std::uint32_t> ops;
      const ExecutorTimes& times = backend.times();
      for (const KernelRecord& kernel : kept.kernels) {
        EXPECT_TRUE(ops.insert(kernel.op_seq).second) << kernel.op_seq << " twice";
        EXPECT_LE(times.begin_ns, kernel.start_ns);
        EXPECT_LE(kernel.start_ns, kernel.end_ns);
        EXPECT_LE(kernel.end_ns, times.end_ns);
      }
      EXPECT_THAT(ops, testing::ElementsAre(0, 3, 4, 7));
      EXPECT_EQ(kept.num_begun, 4);
      EXPECT_EQ(kept.num_ended, 4);
      EXPECT_EQ(times.idle_ns, idle_ns_of(kept.kernels, times.begin_ns, times.end_ns));
      EXPECT_DOUBLE_EQ(backend.bytes_started() - bytes, 2 * 2.0 / 3 * 64 * 4);
      for (const KernelRecord& kernel : kept.kernels)
        EXPECT_EQ(kernel.kind == OpKind::communication,
                  kernel.op_seq == 3 || (kernel.op_seq == 4 && !with_timer));
      EXPECT_LT(times.idle_ns, times.end_ns - times.begin_ns);
    });
}

TEST(CudaTimes, IdleIsWhatNoIntervalCovers) {
  const auto record = [](std::int64_t from, std::int64_t to) {
    return KernelRecord{0, Lane::compute, OpKind::compute, "", from, to};
  };
  EXPECT_EQ(idle_ns_of({}, 10, 30), 20);
  EXPECT_EQ(idle_ns_of(std::vector{record(12, 20), record(15, 18), record(25, 30)}, 10, 30), 7);
  EXPECT_EQ(idle_ns_of(std::vector{record(10, 30)}, 10, 30), 0);
}

TEST(Staged, ATimeoutNamesLanePathAndSilentRank) {
  const std::string text = error_of<TimeoutError>(2, [](Transport& transport) {
    StagedRank gpu{transport};
    transport.set_wait_policy({.yield = true, .timeout_s = 0.2});
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1500});
      return;
    }
    const Buffer x = filled(gpu, 1);
    gpu.rank.order(Lane::compute, Lane::tp);
    const auto scope = gpu.rank.scope("mlp");
    all_reduce(gpu.rank, x.tensor(), gpu.tp, Lane::tp);
    gpu.rank.synchronize();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("no sign of life from rank 1"),
                          HasSubstr("lane tp at mlp: all_reduce"), HasSubstr("over tp[0,1]")));
}

TEST(Staged, AMismatchNamesTheOp) {
  const std::string text = error_of<Error>(2, [](Transport& transport) {
    StagedRank gpu{transport};
    const Buffer x = gpu.integers({transport.rank() + 1, 4}, DType::f32, 0);
    const auto scope = gpu.rank.scope("mlp");
    all_reduce(gpu.rank, x.tensor(), gpu.tp, Lane::tp);
    gpu.rank.synchronize();
  });
  EXPECT_THAT(text, testing::StartsWith("mlp: all_reduce: rank 1 called"));
}

/// An error between GPUs ends the wait, and streams are let go.
TEST(CudaBackend, AnErrorOfCommunicationEndsTheWait) {
  ThreadWorld world{1};
  ThreadTransport transport{world, 0};
  transport.set_wait_policy({.timeout_s = 20});
  FakeDevice device{1};
  CudaBackend backend{device, transport, {}};
  Rank rank{0, Mesh{{}}, backend};
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  device.communication_error = "tp[0,1] on lane tp: the network is down";
  device.stop();
  fill(rank, x.tensor(), 1);
  EXPECT_THAT([&] { rank.synchronize(); },
              testing::ThrowsMessage<PeerError>(HasSubstr("the network is down")));
  EXPECT_EQ(device.num_aborts, 1);
}

}  // namespace
}  // namespace shardmark::cuda
