#include "collectives/plan.hpp"

#include "core/error.hpp"
#include "tests/collectives/plans.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace shardmark {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> one_host(int num_ranks) {
  return std::vector<int>(static_cast<std::size_t>(num_ranks), 0);
}

/// The plan without step `index` (counted over all ranks).
Plan without_step(Plan plan, std::size_t index) {
  plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t& first : plan.first)
    if (first > index) --first;
  return plan;
}

/// Steps of the busiest rank that send or receive.
std::int64_t exchanges(const Plan& plan) {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.num_ranks; ++rank)
    most = std::max<std::int64_t>(most, std::ranges::count_if(plan.steps_of(rank), [](auto& s) {
                                    return s.kind == Step::Kind::exchange;
                                  }));
  return most;
}

std::int64_t most_sent(const Plan& plan) {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.num_ranks; ++rank) most = std::max(most, plan.slots_sent(rank));
  return most;
}

TEST(Plans, EveryGeneratorIsRight) {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16})
    for_each_plan(
        n, [&](const Plan& plan) { EXPECT_THAT(validate(plan), IsEmpty()) << describe(plan); });
}

TEST(Plans, NoStepIsRedundant) {
  for (const int n : {2, 3, 4, 5, 6})
    for_each_plan(n, [&](const Plan& plan) {
      for (std::size_t i = 0; i < plan.steps.size(); ++i)
        EXPECT_FALSE(validate(without_step(plan, i)).empty())
            << describe(plan) << " is right without step " << i << '\n'
            << to_text(plan);
    });
}

TEST(Plans, RingIsTheTextbooks) {
  for (const int n : {2, 3, 4, 7, 8, 64}) {
    const Plan all_reduce = make_plan(Collective::all_reduce, "ring", one_host(n));
    const Plan all_gather = make_plan(Collective::all_gather, "ring", one_host(n));
    const Plan reduce_scatter = make_plan(Collective::reduce_scatter, "ring", one_host(n));
    EXPECT_EQ(exchanges(all_reduce), 2 * (n - 1));
    EXPECT_EQ(exchanges(all_gather), n - 1);
    EXPECT_EQ(exchanges(reduce_scatter), n - 1);
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(all_reduce.slots_sent(rank), 2 * (n - 1));  // of n
      EXPECT_EQ(all_gather.slots_sent(rank), n - 1);
      EXPECT_EQ(reduce_scatter.slots_sent(rank), n - 1);
    }
  }
}

TEST(Plans, RecursiveIsTheTextbooks) {
  for (const int n : {2, 4, 8, 64}) {
    const int log = std::countr_zero(static_cast<unsigned>(n));
    const Plan doubling = make_plan(Collective::all_reduce, "recursive_doubling", one_host(n));
    EXPECT_EQ(exchanges(doubling), log);
    EXPECT_EQ(most_sent(doubling), log);
    const Plan halving = make_plan(Collective::all_reduce, "halving_doubling", one_host(n));
    EXPECT_EQ(exchanges(halving), 2 * log);
    EXPECT_EQ(most_sent(halving), 2 * (n - 1));
    const Plan scatter = make_plan(Collective::reduce_scatter, "halving_doubling", one_host(n));
    EXPECT_EQ(exchanges(scatter), log);
    EXPECT_EQ(most_sent(scatter), n - 1);
    const Plan gather = make_plan(Collective::all_gather, "recursive_doubling", one_host(n));
    EXPECT_EQ(exchanges(gather), log);
    EXPECT_EQ(most_sent(gather), n - 1);
  }
  // Folding costs two steps.
  EXPECT_EQ(exchanges(make_plan(Collective::all_reduce, "recursive_doubling", one_host(6))), 4);
}

TEST(Plans, BruckIsTheTextbooks) {
  for (const int n : {2, 3, 5, 8, 13}) {
    const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
    const Plan gather = make_plan(Collective::all_gather, "bruck", one_host(n));
    EXPECT_EQ(exchanges(gather), rounds);
    EXPECT_EQ(most_sent(gather), n - 1);
    const Plan all_to_all = make_plan(Collective::all_to_all, "bruck", one_host(n));
    EXPECT_EQ(exchanges(all_to_all), rounds);
    std::int64_t set_bits = 0;
    for (unsigned j = 1; j < static_cast<unsigned>(n); ++j) set_bits += std::popcount(j);
    EXPECT_EQ(most_sent(all_to_all), set_bits);
  }
}

TEST(Plans, TreesAreTheTextbooks) {
  for (const int n : {2, 3, 6, 8, 9}) {
    const int log = static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
    const Plan broadcast = make_plan(Collective::broadcast, "binomial", one_host(n));
    EXPECT_EQ(broadcast.slots_sent(0), log);
    EXPECT_EQ(broadcast.slots_sent(n - 1), 0);
    const Plan gather = make_plan(Collective::gather, "binomial", one_host(n));
    EXPECT_EQ(exchanges(gather), log);
    const Plan scatter = make_plan(Collective::scatter, "binomial", one_host(n));
    EXPECT_EQ(scatter.slots_sent(0), n - 1);
    // Both trees together: each carries half of the slots over each of its n - 1 edges, twice.
    const Plan two = make_plan(Collective::all_reduce, "double_tree", one_host(n));
    std::int64_t sent = 0;
    for (int rank = 0; rank < n; ++rank) {
      sent += two.slots_sent(rank);
      EXPECT_LE(two.slots_sent(rank), 2 * two.slots_per_block + two.slots_per_block / 2) << n;
    }
    EXPECT_EQ(sent, 2 * (n - 1) * two.slots_per_block);
  }
}

TEST(Plans, AllToAllIsTheTextbooks) {
  const Plan pairwise = make_plan(Collective::all_to_all, "pairwise", one_host(8));
  EXPECT_EQ(exchanges(pairwise), 7);
  EXPECT_EQ(most_sent(pairwise), 7);
  const Plan two_level =
      make_plan(Collective::all_to_all, "two_level", std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(exchanges(two_level), 1 + 3);
  EXPECT_EQ(most_sent(two_level), 4 + 6);
}

/// Slots that leave each host.
std::vector<std::int64_t> slots_between(const Plan& plan, const std::vector<int>& hosts) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(*std::ranges::max_element(hosts)) + 1);
  for (int rank = 0; rank < plan.num_ranks; ++rank)
    for (const Step& step : plan.steps_of(rank)) {
      const int host = hosts[static_cast<std::size_t>(rank)];
      if (step.to >= 0 && hosts[static_cast<std::size_t>(step.to)] != host)
        slots[static_cast<std::size_t>(host)] += step.count;
    }
  return slots;
}

TEST(Plans, HierarchicalSendsTheLeastBetweenHosts) {
  const std::vector<int> hosts{0, 0, 1, 1};
  const Plan hierarchical = make_plan(Collective::all_reduce, "hierarchical", hosts);
  const int whole = hierarchical.slots_per_block;
  EXPECT_THAT(slots_between(hierarchical, hosts), testing::ElementsAre(whole, whole));
  const Plan ring = make_plan(Collective::all_reduce, "ring", hosts);
  EXPECT_THAT(slots_between(ring, hosts), testing::ElementsAre(6, 6));  // of 4: 1.5 buffers
  const Plan gather = make_plan(Collective::all_gather, "hierarchical", hosts);
  EXPECT_THAT(slots_between(gather, hosts), testing::ElementsAre(2, 2));
  const Plan reduce = make_plan(Collective::reduce, "hierarchical", hosts, 3);
  EXPECT_THAT(slots_between(reduce, hosts), testing::ElementsAre(1, 0));
}

TEST(Plans, PipelinedHierarchySendsTheSameOnAllGridsOfHosts) {
  constexpr int segments = 32;
  for (int num_hosts = 1; num_hosts <= 5; ++num_hosts)
    for (int locals = 1; locals <= 5; ++locals) {
      std::vector<int> hosts;
      for (int rank = 0; rank < num_hosts * locals; ++rank) hosts.push_back(rank / locals);
      if (hosts.size() < 2) continue;
      const Plan plan = make_plan(Collective::all_reduce, "hierarchical_pipelined", hosts);
      SCOPED_TRACE(testing::Message() << num_hosts << " hosts of " << locals);
      EXPECT_THAT(validate(plan), testing::IsEmpty());
      const Plan whole = make_plan(Collective::all_reduce, "hierarchical", hosts);
      EXPECT_EQ(plan.slots_per_block, segments * whole.slots_per_block);
      for (int rank = 0; rank < plan.num_ranks; ++rank)
        EXPECT_EQ(plan.slots_sent(rank), segments * whole.slots_sent(rank)) << "rank " << rank;
      // Each segment goes 2(L - 1) + 2(H - 1) ring steps; a step is split where both kinds meet.
      EXPECT_GE(exchanges(plan), segments * 2 * (locals - 1 + num_hosts - 1));
      EXPECT_LE(exchanges(plan), segments * 4 * (locals - 1 + num_hosts - 1));
    }
}

TEST(Plans, DroppedSendIsNamed) {
  // Rank 1's last step: it sends the last chunk on to rank 2.
  const Plan plan = make_plan(Collective::all_gather, "ring", one_host(3));
  const Plan broken = without_step(plan, plan.first[2] - 1);
  EXPECT_THAT(validate(broken),
              Contains(HasSubstr("rank 2 step 2: receives from rank 1, which sends nothing more")));
}

TEST(Plans, MissingContributionIsNamed) {
  Plan plan = make_plan(Collective::all_reduce, "binomial", one_host(2));
  // Rank 0 overwrites its own part with what comes instead of adding.
  for (Step& step : plan.steps)
    if (step.receive == Step::Receive::reduce) step.receive = Step::Receive::store;
  EXPECT_THAT(validate(plan), Contains("output slot 0 of rank 0 lacks rank 0's contribution"));
}

TEST(Plans, DoubleContributionIsNamed) {
  PlanBuilder builder{Collective::all_reduce, "twice", 2, 0, 1, 0};
  for (const int peer : {1, 0}) {
    builder.next_rank();
    builder.copy(0, 1, 1);
    builder.exchange(peer, 0, 1, peer, 1, 1, Step::Receive::reduce);
    builder.exchange(peer, 0, 1, peer, 1, 1, Step::Receive::reduce);
  }
  EXPECT_THAT(validate(std::move(builder).finish()),
              Contains("output slot 0 of rank 1 has rank 0's contribution twice"));
}

TEST(Plans, CycleIsNamed) {
  PlanBuilder builder{Collective::all_gather, "cycle", 3, 0, 1, 0};
  for (int rank = 0; rank < 3; ++rank) {
    builder.next_rank();
    builder.copy(0, 1 + rank, 1);
    builder.send((rank + 1) % 3, 0, 1);
    builder.receive((rank + 2) % 3, 1 + (rank + 2) % 3, 1, Step::Receive::store);
  }
  const auto problems = validate(std::move(builder).finish());
  EXPECT_THAT(problems, testing::ElementsAre(
                            "deadlock: rank 0 step 1 sends to rank 1, rank 1 step 1 sends to "
                            "rank 2, rank 2 step 1 sends to rank 0, which closes the cycle"));
}

TEST(Plans, WrongPlaceIsNamed) {
  Plan plan = make_plan(Collective::all_to_all, "pairwise", one_host(3));
  // Rank 0 sends ranks 1 and 2 each other's block.
  std::swap(plan.steps[1].source, plan.steps[2].source);
  EXPECT_THAT(validate(plan),
              Contains("output slot 0 of rank 1 holds input slot 2 of rank 0 instead of input "
                       "slot 1 of rank 0"));
}

TEST(Plans, WritingInputAndUnequalLengthsAreNamed) {
  Plan plan = make_plan(Collective::all_gather, "ring", one_host(2));
  plan.steps[1].target = 0;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("rank 0 step 1: receives into input slot 0, and the input")));
  plan = make_plan(Collective::scatter, "binomial", one_host(2));
  plan.steps[0].source = 0;
  plan.steps[0].count = 2;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("receives 1 slots from rank 0, whose step 0 sends 2")));
}

TEST(Plans, UnknownAlgorithmsSayWhatExists) {
  try {
    (void)make_plan(Collective::gather, "ring", one_host(4));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "there is no algorithm 'ring' for gather; there is native, binomial");
  }
  EXPECT_THROW((void)make_plan(Collective::gather, "binomial", one_host(4), 4), InputError);
}

}  // namespace
}  // namespace shardmark
