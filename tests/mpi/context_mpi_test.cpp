// Context parallelism over MPI, as with threads: every kind and order, heads and masks, on as many
// ranks as mpirun started; blocks with TP on top where they are 4.

#include "core/cpu/backend.hpp"
#include "core/reference/backend.hpp"
#include "layers/check.hpp"
#include "tests/context/programs.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

void expect_equal_to_serial(Transport& transport, const test::ContextCase& c) {
  Arena arena{std::int64_t{1} << 28U};
  Kernels kernels{1, arena};
  CpuBackend cpu{transport, arena, kernels};
  ReferenceBackend unused;  // the serial side is f64 by itself
  const LayerConfig config = c.on(transport.rank());
  connect_all(transport, record_program(config, Phase::step, 1).ops);
  Rank rank{transport.rank(), c.mesh(), cpu};
  const CheckResult result = check_against_serial(rank, config, unused, 7);
  EXPECT_TRUE(result.pass) << c << ": " << result.problem;
}

TEST(ContextOverMpi, AttentionEqualsOneRank) {
  Transport& transport = mpi_transport();
  for (const test::ContextCase& c : test::all_variants(BlockKind::attention_core, transport.size()))
    expect_equal_to_serial(transport, c);
}

TEST(ContextOverMpi, BlocksWithTpEqualOneRank) {
  Transport& transport = mpi_transport();
  for (const test::ContextCase& c : test::all_kinds_with_tp(BlockKind::block))
    if (c.ranks() == transport.size()) expect_equal_to_serial(transport, c);
}

}  // namespace
}  // namespace shardmark
