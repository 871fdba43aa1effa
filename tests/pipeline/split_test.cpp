#include "layers/pipeline/split.hpp"

#include "tests/pipeline/schedules.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace shardmark::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Blocks = std::vector<std::int64_t>;

double slowest(const LayerCosts& costs, const Blocks& blocks, const std::vector<int>& ranks) {
  return std::ranges::max(cost_of_ranks(costs, blocks, ranks));
}
std::int64_t squares(const Blocks& blocks) {
  return std::inner_product(blocks.begin(), blocks.end(), blocks.begin(), std::int64_t{0});
}

/// Every split of `num_blocks` into stages of at least one.
void for_each_split(std::int64_t num_blocks, std::size_t num_stages,
                    const std::function<void(const Blocks&)>& visit) {
  Blocks blocks;
  const std::function<void(std::int64_t)> extend = [&](std::int64_t left) {
    const auto stages_left = static_cast<std::int64_t>(num_stages - blocks.size());
    if (stages_left == 1) {
      blocks.push_back(left);
      visit(blocks);
      blocks.pop_back();
      return;
    }
    for (std::int64_t count = 1; count <= left - (stages_left - 1); ++count) {
      blocks.push_back(count);
      extend(left - count);
      blocks.pop_back();
    }
  };
  extend(num_blocks);
}

struct Best {
  double bottleneck{std::numeric_limits<double>::infinity()};
  std::int64_t squares{0};
};
Best by_brute_force(const LayerCosts& costs, std::int64_t num_blocks,
                    const std::vector<int>& ranks) {
  Best best;
  for_each_split(num_blocks, ranks.size(), [&](const Blocks& blocks) {
    const double bottleneck = slowest(costs, blocks, ranks);
    const bool better = bottleneck < best.bottleneck;
    if (better || (bottleneck == best.bottleneck && squares(blocks) < best.squares))
      best = {bottleneck, squares(blocks)};
  });
  return best;
}

const std::vector<std::vector<int>> placements{
    {0},
    {0, 1},
    {0, 1, 2},
    {0, 1, 2, 3},  // a line
    {0, 1, 0, 1},
    {0, 0},
    {0, 1, 2, 0, 1, 2},  // interleaved
    {0, 1, 1, 0},
    {0, 1, 2, 2, 1, 0},  // a V
    {0, 1, 0},
    {0, 0, 1, 2},
    {0, 1, 0, 1, 0, 1},  // of a file
};

// Costs are multiples of a quarter, so sums are exact in any order.
TEST(Split, ByCostIsTheBestOfAllSplits) {
  std::mt19937 random{3};
  int num_cases = 0;
  for (const std::vector<int>& ranks : placements)
    for (std::int64_t num_blocks = std::ssize(ranks); num_blocks <= 10; ++num_blocks)
      for (int trial = 0; trial < 12; ++trial) {
        const auto quarters = [&](unsigned most) {
          return static_cast<double>(random() % (most + 1)) / 4;
        };
        const LayerCosts costs{quarters(12), 0.25 + quarters(8), quarters(40)};
        SCOPED_TRACE(message("ranks ", testing::PrintToString(ranks), " blocks ", num_blocks,
                             " embedding ", costs.embedding, " block ", costs.block, " head ",
                             costs.head));
        const Blocks blocks = split_by_cost(costs, num_blocks, ranks);
        ASSERT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), num_blocks);
        ASSERT_GE(std::ranges::min(blocks), 1);
        const Best best = by_brute_force(costs, num_blocks, ranks);
        ASSERT_EQ(slowest(costs, blocks, ranks), best.bottleneck);
        ASSERT_EQ(squares(blocks), best.squares);
        ++num_cases;
      }
  EXPECT_GT(num_cases, 500);
}

TEST(Split, ByCostOfEqualRanksIsEven) {
  for (int stages = 1; stages <= 7; ++stages) {
    std::vector<int> line(static_cast<std::size_t>(stages));
    std::iota(line.begin(), line.end(), 0);
    for (std::int64_t blocks = stages; blocks < 40; ++blocks)
      EXPECT_EQ(split_by_cost({}, blocks, line), split_evenly(blocks, stages));
  }
}

TEST(Split, AHeadAsLongAsThreeBlocksTakesTheirPlace) {
  EXPECT_THAT(split_by_cost({0, 1, 3}, 24, std::vector{0, 1, 2}), ElementsAre(9, 9, 6));
  EXPECT_THAT(split_by_cost({1, 1, 3}, 23, std::vector{0, 1, 2}), ElementsAre(8, 9, 6));
  // In a V the first and the last stage share a rank, in a loop they do not.
  EXPECT_THAT(split_by_cost({0, 1, 3}, 9, std::vector{0, 1, 1, 0}), ElementsAre(2, 3, 3, 1));
  EXPECT_THAT(split_by_cost({0, 1, 3}, 9, std::vector{0, 1, 0, 1}), ElementsAre(3, 2, 3, 1));
}

TEST(Split, AHeadLongerThanAllBlocksLeavesOneWithIt) {
  EXPECT_THAT(split_by_cost({0, 1, 50}, 8, std::vector{0, 1, 2}), ElementsAre(4, 3, 1));
}

// Times of a profile are no round numbers.
TEST(Split, RoundingOfTimesDoesNotLeaveABlockWithoutRoom) {
  std::mt19937 random{11};
  std::uniform_real_distribution<double> time{0.1, 1000};
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<int>& ranks = placements[static_cast<std::size_t>(trial) % placements.size()];
    const LayerCosts costs{time(random), time(random), time(random)};
    const std::int64_t num_blocks = std::ssize(ranks) + trial % 90;
    const Blocks blocks = split_by_cost(costs, num_blocks, ranks);
    const Blocks even = split_evenly(num_blocks, static_cast<int>(ranks.size()));
    EXPECT_LE(slowest(costs, blocks, ranks), slowest(costs, even, ranks) * (1 + 1e-12));
  }
}

TEST(Split, LargeModelsAreQuick) {
  std::vector<int> ranks;
  for (int chunk = 0; chunk < 8; ++chunk)
    for (int rank = 0; rank < 64; ++rank) ranks.push_back(rank);
  const Blocks blocks = split_by_cost({3, 1, 20}, 2000, ranks);
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), 2000);
}

TEST(Split, EvenlyGivesTheRestToEarlierStages) {
  EXPECT_THAT(split_evenly(24, 3), ElementsAre(8, 8, 8));
  EXPECT_THAT(split_evenly(8, 3), ElementsAre(3, 3, 2));
  EXPECT_THAT(split_evenly(7, 6), ElementsAre(2, 1, 1, 1, 1, 1));
}

TEST(Split, AStageWithoutLayersIsRefused) {
  const std::string expected =
      "5 layers for 6 stages; every stage needs one: at least 6 layers, or fewer ranks or chunks";
  EXPECT_EQ(test::refusal([] { return split_evenly(5, 6); }), expected);
  EXPECT_EQ(test::refusal([] {
              return split_by_cost({}, 5, std::vector{0, 1, 2, 2, 1, 0});
            }),
            expected);
  EXPECT_EQ(test::refusal([] { return check_split({1, 1, 1, 1, 1, 0}, 5, 6); }), expected);
}

TEST(Split, AGivenSplitIsTakenOrRefusedWithAWayOut) {
  EXPECT_THAT(check_split({9, 8, 8, 7}, 32, 4), ElementsAre(9, 8, 8, 7));
  EXPECT_EQ(test::refusal([] {
              return check_split({9, 8, 8, 7}, 24, 3);
            }),
            "split 9,8,8,7 is for 4 stages, and there are 3; try 8,8,8");
  EXPECT_EQ(test::refusal([] {
              return check_split({9, 8, 8}, 24, 3);
            }),
            "split 9,8,8 adds up to 25, not to the 24 layers; try 8,8,8, or 25 layers");
  EXPECT_EQ(test::refusal([] {
              return check_split({16, 0, 8}, 24, 3);
            }),
            "split 16,0,8 leaves stage 1 with 0 layers; every stage needs one; try 8,8,8");
}

TEST(Split, CostsBelongToTheRankOfTheirStage) {
  EXPECT_THAT(cost_of_ranks({1, 2, 10}, Blocks{2, 1, 3}, std::vector{0, 1, 2}),
              ElementsAre(5, 2, 16));
  EXPECT_THAT(cost_of_ranks({1, 2, 10}, Blocks{2, 1, 1, 3}, std::vector{0, 1, 1, 0}),
              ElementsAre(21, 4));
}

}  // namespace
}  // namespace shardmark::pipeline
