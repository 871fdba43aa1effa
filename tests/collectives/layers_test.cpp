// Layers give the serial block's results whatever algorithm does their collectives.

#include "collectives/run.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/launch.hpp"
#include "layers/check.hpp"
#include "layers/recording.hpp"
#include "tests/layers/configs.hpp"

#include <gtest/gtest.h>

namespace shardmark {
namespace {

constexpr std::int64_t arena_bytes = std::int64_t{1} << 30U;

class Layers : public testing::TestWithParam<std::string> {};

TEST_P(Layers, EqualTheSerialBlock) {
  const int tp = 4;
  for (const bool sequence_parallel : {false, true})
    run_threads(tp, [&](Transport& transport) {
      transport.set_wait_policy({.yield = true, .timeout_s = 30});
      Arena arena{arena_bytes};
      Kernels kernels{1, arena};
      ThreadWorld lone_world{1};
      ThreadTransport alone{lone_world, 0};
      CpuBackend cpu{transport, arena, kernels};
      CpuBackend serial{alone, arena, kernels};
      PlannedBackend planned{cpu, {parse_axis_algorithms(GetParam()), {}}, {0, 0, 1, 1}};
      LayerConfig config;
      config.block = BlockKind::block;
      config.shape = test::small_shape(tp);
      config.parallel.tp = Group{Axis::tp, 0, 1, tp, transport.rank()};
      config.parallel.sequence_parallel = sequence_parallel;
      connect_all(transport, record_program(config, Phase::step, 1).ops);
      Rank rank{transport.rank(), Mesh{{.tp = tp}}, planned};
      const CheckResult result = check_against_serial(rank, config, serial, 7);
      EXPECT_TRUE(result.pass) << result.problem;
      EXPECT_NEAR(planned.bytes_sent(), transport.bytes_started(), 0.5);
    });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Layers,
                         testing::Values("tp=native", "tp=ring", "tp=halving_doubling",
                                         "tp=recursive_doubling", "tp=double_tree",
                                         "tp=hierarchical", "tp=binomial", "tp=bruck"),
                         [](const auto& test) { return test.param.substr(3); });

}  // namespace
}  // namespace shardmark
