// Idea: blocks cost the same, so a rank costs what is fixed on it (embedding, head) plus a block's
// cost for each of its blocks, wherever its stages are.
//
// 1. Every stage gets one block. The others go, one by one, to the rank that costs least with one
//    more. The largest cost is then the least possible: any split hands out as many blocks, and the
//    costs after a next block, sorted, are taken from the bottom.
// 2. Under that bottleneck each rank has room for so many blocks. Hand them out again, one by one,
//    to the stage with the fewest whose rank has room: of all splits with this bottleneck the one
//    with the least sum of squares (a greedy choice over a polymatroid).
//
// Cost: blocks x stages.

#include "layers/pipeline/split.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace shardmark::pipeline {
namespace {

std::string joined(std::span<const std::int64_t> blocks) {
  std::string text;
  for (const std::int64_t count : blocks) text += message(text.empty() ? "" : ",", count);
  return text;
}

std::size_t num_ranks(std::span<const int> rank_of_stage) {
  return static_cast<std::size_t>(std::ranges::max(rank_of_stage)) + 1;
}

/// The largest cost of a rank that has to be accepted (step 1).
double least_bottleneck(const LayerCosts& costs, std::int64_t num_blocks,
                        std::span<const int> rank_of_stage) {
  const std::vector<std::int64_t> one_each(rank_of_stage.size(), 1);
  std::vector<double> ranks = cost_of_ranks(costs, one_each, rank_of_stage);
  // Ranks without a stage take none.
  std::vector<bool> has_stage(ranks.size(), false);
  for (const int rank : rank_of_stage) has_stage[static_cast<std::size_t>(rank)] = true;
  for (auto left = num_blocks - std::ssize(rank_of_stage); left > 0; --left) {
    std::size_t least = ranks.size();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (has_stage[rank] && (least == ranks.size() || ranks[rank] < ranks[least])) least = rank;
    ranks[least] += costs.block;
  }
  return std::ranges::max(ranks);
}

}  // namespace

std::vector<std::int64_t> split_evenly(std::int64_t num_blocks, int num_stages) {
  if (num_blocks < num_stages)
    throw InputError{message(num_blocks, " layers for ", num_stages,
                             " stages; every stage needs one: at least ", num_stages,
                             " layers, or fewer ranks or chunks")};
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(num_stages), num_blocks / num_stages);
  for (std::int64_t stage = 0; stage < num_blocks % num_stages; ++stage)
    ++blocks[static_cast<std::size_t>(stage)];
  return blocks;
}

std::vector<std::int64_t> split_by_cost(const LayerCosts& costs, std::int64_t num_blocks,
                                        std::span<const int> rank_of_stage) {
  SHARDMARK_CHECK(costs.block > 0, "a block that costs ", costs.block);
  const int num_stages = static_cast<int>(rank_of_stage.size());
  std::vector<std::int64_t> blocks = split_evenly(num_blocks, num_stages);  // checks the number
  const double bottleneck = least_bottleneck(costs, num_blocks, rank_of_stage);

  std::ranges::fill(blocks, 1);
  std::vector<std::int64_t> room;
  constexpr double rounding = 1e-6;  // of a block: sums in another order differ in the last bits
  for (const double cost : cost_of_ranks(costs, blocks, rank_of_stage))
    room.push_back(static_cast<std::int64_t>((bottleneck - cost) / costs.block + rounding));
  for (auto left = num_blocks - num_stages; left > 0; --left) {
    std::size_t fewest = blocks.size();
    for (std::size_t stage = 0; stage < blocks.size(); ++stage)
      if (room[static_cast<std::size_t>(rank_of_stage[stage])] > 0 &&
          (fewest == blocks.size() || blocks[stage] < blocks[fewest]))
        fewest = stage;
    SHARDMARK_CHECK(fewest < blocks.size(), "no room for ", left, " blocks");
    ++blocks[fewest];
    --room[static_cast<std::size_t>(rank_of_stage[fewest])];
  }
  return blocks;
}

std::vector<std::int64_t> check_split(std::vector<std::int64_t> blocks, std::int64_t num_blocks,
                                      int num_stages) {
  const std::vector<std::int64_t> even = split_evenly(num_blocks, num_stages);
  const auto refuse = [&](const auto&... parts) {
    throw InputError{message("split ", joined(blocks), parts...)};
  };
  if (std::ssize(blocks) != num_stages)
    refuse(" is for ", blocks.size(), " stages, and there are ", num_stages, "; try ",
           joined(even));
  for (std::size_t stage = 0; stage < blocks.size(); ++stage)
    if (blocks[stage] < 1)
      refuse(" leaves stage ", stage, " with ", blocks[stage],
             " layers; every stage needs one; try ", joined(even));
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (sum != num_blocks)
    refuse(" adds up to ", sum, ", not to the ", num_blocks, " layers; try ", joined(even), ", or ",
           sum, " layers");
  return blocks;
}

std::vector<double> cost_of_ranks(const LayerCosts& costs, std::span<const std::int64_t> blocks,
                                  std::span<const int> rank_of_stage) {
  SHARDMARK_CHECK(!blocks.empty() && blocks.size() == rank_of_stage.size(), blocks.size(),
                  " stages with blocks, ", rank_of_stage.size(), " with a rank");
  std::vector<double> ranks(num_ranks(rank_of_stage), 0);
  for (std::size_t stage = 0; stage < blocks.size(); ++stage)
    ranks[static_cast<std::size_t>(rank_of_stage[stage])] +=
        costs.block * static_cast<double>(blocks[stage]);
  ranks[static_cast<std::size_t>(rank_of_stage.front())] += costs.embedding;
  ranks[static_cast<std::size_t>(rank_of_stage.back())] += costs.head;
  return ranks;
}

}  // namespace shardmark::pipeline
