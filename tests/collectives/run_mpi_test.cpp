#include "tests/collectives/exact_runs.hpp"
#include "tests/support/mpi_main.hpp"

namespace shardmark {
namespace {

TEST(EveryPlan, GivesTheExactResultOverMpi) { test::every_plan_is_exact(mpi_transport()); }

}  // namespace
}  // namespace shardmark
