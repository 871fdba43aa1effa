// V shapes: rank r holds stages r and 2p - 1 - r, so a micro-batch goes down the ranks and up
// again, and the rank that waits longest for a gradient in its first chunk waits least in its
// second: all ranks hold equally many activations.
//
// A schedule repeats one building block, the passes of one micro-batch, every 6 units (F, I and W
// of two chunks). How far apart neighbours do the same decides lifetimes, hence memory (a stage
// here has half the layers of a stage of 1F1B, and p activations of 1F1B are 2p of these):
//   v-min   steps 1, 1, 1, 1: memory about 1/3 of 1F1B, bubble about 2/3
//   v-half  steps 2, 1, 2, 1: memory about 1/2 of 1F1B, bubble about 1/2
//   zb-v    steps 4, 2, 4, 2: memory of 1F1B, no bubble within a rank's own span (m >= 2p - 1)
// Source: Pipeline Parallelism with Controllable Memory, arXiv 2405.15362 section 3; zb-v also
// arXiv 2401.10241 section 6.

#include "layers/pipeline/generators_internal.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace shardmark::pipeline::generators {
namespace {

constexpr int period = 6;

/// When a rank does which pass of micro-batch 0.
struct Block {
  int first_forward, second_forward, second_gradient, first_gradient;
};

/// `pause`: between the last forward and the first gradient, both on rank 0.
std::vector<Block> block_of(int ranks, const BlockSteps& steps, int pause) {
  const int last = ranks - 1;
  const int turn = last * steps.first_forward + 1;
  const int gradients = turn + last * steps.second_forward + 1 + pause;
  const int turn_back = gradients + last * steps.second_gradient + 1;
  std::vector<Block> blocks;
  for (int rank = 0; rank < ranks; ++rank)
    blocks.push_back({rank * steps.first_forward, turn + (last - rank) * steps.second_forward,
                      gradients + rank * steps.second_gradient,
                      turn_back + (last - rank) * steps.first_gradient});
  return blocks;
}

bool collides(const Block& block) {
  std::array<int, 4> slots{block.first_forward % period, block.second_forward % period,
                           block.second_gradient % period, block.first_gradient % period};
  std::ranges::sort(slots);
  return std::ranges::adjacent_find(slots) != slots.end();
}

}  // namespace

std::optional<Schedule> repeat_block(std::string_view name, int ranks, int micro,
                                     const BlockSteps& steps) {
  std::vector<Block> blocks;
  for (int pause = 0; pause < period; ++pause) {
    blocks = block_of(ranks, steps, pause);
    if (std::ranges::none_of(blocks, collides)) break;
    blocks.clear();
  }
  if (blocks.empty()) return {};
  Schedule order = empty_v(name, ranks, micro);
  for (int rank = 0; rank < ranks; ++rank) {
    const Block& block = blocks[static_cast<std::size_t>(rank)];
    const int first = rank, second = 2 * ranks - 1 - rank;
    std::vector<std::tuple<int, Action>> passes;
    for (int m = 0; m < micro; ++m) {
      passes.push_back({block.first_forward + period * m, {Act::F, first, m}});
      passes.push_back({block.second_forward + period * m, {Act::F, second, m}});
      passes.push_back({block.second_gradient + period * m, {Act::I, second, m}});
      passes.push_back({block.first_gradient + period * m, {Act::I, first, m}});
    }
    std::ranges::sort(passes);
    for (const auto& [time, action] : passes)
      order.ranks[static_cast<std::size_t>(rank)].push_back({action, {}});
  }
  return order;
}

Schedule zb_v_order(std::string_view name, int ranks, int micro) {
  // The pattern needs 2p - 1 micro-batches to unfold; of fewer, the others are left out.
  const int unfolded = std::max(micro, 2 * ranks - 1);
  Schedule order = empty_v(name, ranks, micro);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& steps = order.ranks[static_cast<std::size_t>(rank)];
    int first_forwards = 0, second_forwards = 0, first_gradients = 0, second_gradients = 0;
    const auto add = [&](Act act, int stage, int& count) {
      if (count < micro) steps.push_back({{act, stage, count}, {}});
      ++count;
    };
    const auto first_forward = [&] { add(Act::F, rank, first_forwards); };
    const auto second_forward = [&] { add(Act::F, 2 * ranks - 1 - rank, second_forwards); };
    const auto first_gradient = [&] { add(Act::I, rank, first_gradients); };
    const auto second_gradient = [&] { add(Act::I, 2 * ranks - 1 - rank, second_gradients); };
    // Forwards until the first micro-batch is back, then until its gradient can begin.
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) first_forward();
    for (int i = 0; i < rank; ++i) {
      second_forward();
      first_forward();
    }
    // Second chunks alone until the gradient has been to the last rank and back.
    for (int i = 0; i < ranks - rank; ++i) {
      second_forward();
      second_gradient();
    }
    while (second_forwards < unfolded) {
      if (first_forwards < unfolded) first_forward();
      first_gradient();
      second_forward();
      second_gradient();
    }
    while (first_gradients < unfolded) {
      first_gradient();
      if (second_gradients < unfolded) second_gradient();
    }
  }
  return order;
}

}  // namespace shardmark::pipeline::generators
