// Pipelines over MPI equal the model on one rank, on as many ranks as mpirun started: every
// schedule, and TP inside or copies outside where they are 4.

#include "tests/layers/hosts.hpp"
#include "tests/pipeline/programs.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using test::PipelineCase;

void expect_equal_to_serial(Transport& transport, const PipelineCase& c) {
  const CheckResult result = test::check_rank(transport, c);
  EXPECT_TRUE(result.pass) << c << ": " << result.problem;
}

TEST(PipelineOverMpi, EveryScheduleEqualsOneRank) {
  Transport& transport = mpi_transport();
  for (const PipelineCase& c : test::all_schedules({transport.size()}, {4, 8}))
    expect_equal_to_serial(transport, c);
}

TEST(PipelineOverMpi, WithTensorAndDataParallelismEqualsOneRank) {
  Transport& transport = mpi_transport();
  if (transport.size() != 4) GTEST_SKIP() << "needs 4 ranks";
  using test::Lowering;
  using test::ScheduleKind;
  for (const ScheduleKind kind :
       {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::dualpipe})
    for (const auto& [tp, dp] : {std::pair{2, 1}, {1, 2}})
      for (const Lowering lowering : {Lowering::split, Lowering::merged})
        expect_equal_to_serial(
            transport, test::pipeline_case(kind, {.ranks = 2, .micro = 4}, lowering, tp, dp));
}

}  // namespace
}  // namespace shardmark
