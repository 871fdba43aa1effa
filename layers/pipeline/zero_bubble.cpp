// ZB-H1 and ZB-H2: the backward is split, B = I + W, and W fills what would be bubble.
//
// ZB-H1 keeps 1F1B's order and p activations on every rank; bubble (p - 1) max(F, I, F + I - W), at
// unit times (p - 1) instead of 3 (p - 1). ZB-H2 starts with 2 (p - r) - 1 forwards on rank r and
// holds 2p - 1 activations; no rank idles between its first and its last action (for m >= 2p - 1),
// only the start is staggered: (p - 1) F over the common window.
// Source: Zero Bubble Pipeline Parallelism, arXiv 2401.10241 section 2.

#include "layers/pipeline/generators_internal.hpp"

#include <algorithm>

namespace shardmark::pipeline::generators {

Schedule one_f_one_i(std::string_view name, int micro, std::span<const int> forwards) {
  Schedule order = empty_loop(name, static_cast<int>(forwards.size()), 1, micro);
  for (int rank = 0; rank < order.num_ranks(); ++rank) {
    auto& steps = order.ranks[static_cast<std::size_t>(rank)];
    const int warm_up = std::min(micro, forwards[static_cast<std::size_t>(rank)]);
    for (int m = 0; m < warm_up; ++m) steps.push_back({{Act::F, rank, m}, {}});
    for (int m = 0; m < micro; ++m) {
      steps.push_back({{Act::I, rank, m}, {}});
      if (warm_up + m < micro) steps.push_back({{Act::F, rank, warm_up + m}, {}});
    }
  }
  return order;
}

}  // namespace shardmark::pipeline::generators
