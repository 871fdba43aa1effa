#include "core/launch.hpp"
#include "tests/collectives/exact_runs.hpp"

namespace shardmark {
namespace {

class EveryPlan : public testing::TestWithParam<int> {};

TEST_P(EveryPlan, GivesTheExactResult) { run_threads(GetParam(), test::every_plan_is_exact); }

INSTANTIATE_TEST_SUITE_P(Threads, EveryPlan, testing::Values(1, 2, 3, 4, 7, 8));

}  // namespace
}  // namespace shardmark
