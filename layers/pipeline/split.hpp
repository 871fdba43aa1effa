#pragma once

// Which transformer blocks a stage gets.

#include <cstdint>
#include <span>
#include <vector>

namespace shardmark::pipeline {

/// What the parts of a model cost, in any one unit (a micro-batch's forward and backward). Blocks
/// are alike, so one number stands for all of them; with different ones, several stages per rank
/// would make the best split a partition problem.
struct LayerCosts {
  double embedding{0};
  double block{1};  ///< above 0
  double head{0};   ///< final norm, logits and loss
};

/// Blocks of each stage by count: as equal as possible, earlier stages get the rest.
/// Throws InputError when there are fewer blocks than stages.
[[nodiscard]] std::vector<std::int64_t> split_evenly(std::int64_t num_blocks, int num_stages);
/// Blocks of each stage so that the slowest rank costs least; every stage has at least one block,
/// the embedding belongs to the first stage, the head to the last. `rank_of_stage` says which
/// stages share a rank, for any placement. Of equally good splits the one closest to even (least
/// sum of squares). Exact. Throws InputError when there are fewer blocks than stages.
[[nodiscard]] std::vector<std::int64_t> split_by_cost(const LayerCosts& costs,
                                                      std::int64_t num_blocks,
                                                      std::span<const int> rank_of_stage);
/// "9,8,8,7" as given: throws InputError when it has another number of stages, a stage without
/// blocks, or does not add up, naming what would work.
[[nodiscard]] std::vector<std::int64_t> check_split(std::vector<std::int64_t> blocks,
                                                    std::int64_t num_blocks, int num_stages);

/// The cost of each rank under a split.
[[nodiscard]] std::vector<double> cost_of_ranks(const LayerCosts& costs,
                                                std::span<const std::int64_t> blocks,
                                                std::span<const int> rank_of_stage);

}  // namespace shardmark::pipeline
