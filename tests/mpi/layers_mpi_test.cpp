// Parallel equals serial over MPI: the splits that the threads transport is tested with, for as
// many ranks as mpirun started (8 ranks: the shapes of 4 with twice the heads).

#include "tests/layers/configs.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

std::vector<test::Split> splits_for(int ranks) {
  std::vector<test::Split> splits;
  for (test::Split split : test::all_splits()) {
    if (split.tp != std::min(ranks, 4)) continue;
    split.tp = ranks;
    if (ranks == 8) {
      ModelShape& shape = split.config.shape;
      shape.heads *= 2;
      shape.kv_heads = shape.kv_heads == 12 ? 24 : shape.kv_heads;
      shape.hidden *= 2;
      shape.vocab *= 2;
    }
    splits.push_back(split);
  }
  return splits;
}

void expect_equal_to_serial(Transport& transport, const test::Split& split) {
  const CheckResult result = test::check_rank(transport, split);
  EXPECT_TRUE(result.pass) << split << ": " << result.problem;
}

TEST(LayersOverMpi, EqualTheSerialBlockInF32AndBf16) {
  Transport& transport = mpi_transport();
  for (test::Split split : splits_for(transport.size()))
    for (const DType dtype : {DType::f32, DType::bf16}) {
      split.config.dtype = dtype;
      expect_equal_to_serial(transport, split);
    }
}

}  // namespace
}  // namespace shardmark
