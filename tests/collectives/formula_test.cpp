// Closed forms against the steps of plans.

#include "collectives/formula.hpp"

#include "tests/collectives/plans.hpp"

#include <gtest/gtest.h>

namespace shardmark {
namespace {

/// Where slot `slot` of a region of blocks begins.
std::int64_t start(const Plan& plan, std::int64_t block, std::int64_t slot) {
  const std::int64_t slots = plan.slots_per_block;
  return slot / slots * block + slot % slots * block / slots;
}

/// Elements that a rank sends, step by step. Regions begin with whole blocks, so a slot's position
/// in its block is that in the numbering of all.
std::int64_t numel_of_steps(const Plan& plan, int rank, std::int64_t block,
                            const std::vector<std::int64_t>& counts) {
  std::int64_t sent = 0;
  for (const Step& step : plan.steps_of(rank)) {
    if (step.kind != Step::Kind::exchange || step.to < 0) continue;
    if (plan.collective == Collective::all_to_all_v)
      sent += counts[static_cast<std::size_t>(rank * plan.num_ranks + step.to)];
    else
      sent += start(plan, block, step.source + step.count) - start(plan, block, step.source);
  }
  return sent;
}

std::vector<std::int64_t> uneven(int n) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < n * n; ++i) counts.push_back(i * 7 % 5);
  return counts;
}

/// Sizes that divide, that do not, and smaller than the number of slots.
TEST(Formulas, EqualTheStepsOfEveryPlanOnEveryRank) {
  int num_compared = 0;
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16})
    for (const Collective collective : all_collectives)
      for (const std::string_view name : algorithm_names(collective))
        for (const int root : roots_for(collective, n))
          for (const auto& hosts : layouts_for(name, n)) {
            const Plan plan = make_plan(collective, name, hosts, root);
            const std::vector<std::int64_t> counts = uneven(n);
            for (const std::int64_t block : {0, 1, 13, 960 * n})
              for (int rank = 0; rank < n; ++rank) {
                const auto formula = formula_numel_sent(plan, hosts, rank, block, counts);
                ASSERT_TRUE(formula.has_value()) << describe(plan);
                EXPECT_EQ(*formula, numel_of_steps(plan, rank, block, counts))
                    << describe(plan) << " rank " << rank << " blocks of " << block << " hosts "
                    << testing::PrintToString(hosts);
                ++num_compared;
              }
          }
  EXPECT_GT(num_compared, 10'000);
}

/// METRICS 1.1: the least per link, of a whole that divides.
TEST(Formulas, OfARingAreTheFactorsOfBusbw) {
  for (const int n : {2, 3, 4, 7}) {
    const std::vector<int> hosts(static_cast<std::size_t>(n), 0);
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      const std::int64_t block = collective == Collective::all_reduce ? 60 * n : 60;
      const double whole = static_cast<double>(total_numel(collective, n, block));
      const Plan plan = make_plan(collective, "ring", hosts);
      EXPECT_DOUBLE_EQ(static_cast<double>(*formula_numel_sent(plan, hosts, n - 1, block)),
                       busbw_factor(collective, n) * whole)
          << describe(plan);
    }
  }
}

TEST(Formulas, DoNotLookAtSteps) {
  const std::vector<int> hosts(3, 0);
  Plan plan = make_plan(Collective::all_gather, "ring", hosts);
  plan.steps.pop_back();
  plan.first.back() = plan.steps.size();
  EXPECT_EQ(formula_numel_sent(plan, hosts, 2, 10), 20);
  EXPECT_EQ(numel_of_steps(plan, 2, 10, {}), 10);
  plan.algorithm = "mine";
  EXPECT_EQ(formula_numel_sent(plan, hosts, 2, 10), std::nullopt);
}

}  // namespace
}  // namespace shardmark
