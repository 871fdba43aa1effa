// Layers give the serial block's results whatever algorithm does their collectives.

#include "collectives/run.hpp"
#include "tests/layers/configs.hpp"
#include "tests/layers/hosts.hpp"

#include <gtest/gtest.h>

namespace shardmark {
namespace {

class Layers : public testing::TestWithParam<std::string> {};

TEST_P(Layers, EqualTheSerialBlock) {
  const int tp = 4;
  for (const bool sequence_parallel : {false, true})
    run_threads(tp, [&](Transport& transport) {
      transport.set_wait_policy({.yield = true, .timeout_s = 30});
      test::Host host{transport};
      PlannedBackend planned{host.cpu, {parse_axis_algorithms(GetParam()), {}}, {0, 0, 1, 1}};
      LayerConfig config;
      config.block = BlockKind::block;
      config.shape = test::small_shape(tp);
      config.parallel.tp = Group{Axis::tp, 0, 1, tp, transport.rank()};
      config.parallel.sequence_parallel = sequence_parallel;
      connect_all(transport, record_program(config, Phase::step, 1).ops);
      Rank rank{transport.rank(), Mesh{{.tp = tp}}, planned};
      const CheckResult result = check_against_serial(rank, config, host.serial, 7);
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
