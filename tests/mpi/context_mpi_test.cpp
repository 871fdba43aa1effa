// Context parallelism over MPI, as with threads: every kind and order, heads and masks, on as many
// ranks as mpirun started; blocks with TP on top where they are 4.

#include "tests/context/programs.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

void expect_equal_to_serial(Transport& transport, const test::ContextCase& c) {
  const CheckResult result = test::check_rank(transport, c);
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
