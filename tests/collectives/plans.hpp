#pragma once

#include "collectives/plan.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

inline constexpr Collective all_collectives[] = {Collective::all_reduce,     Collective::all_gather,
                                                 Collective::reduce_scatter, Collective::all_to_all,
                                                 Collective::all_to_all_v,   Collective::broadcast,
                                                 Collective::reduce,         Collective::gather,
                                                 Collective::scatter,        Collective::barrier};

/// Ways to spread `num_ranks` over hosts: one, one each, pairs, halves, alternating, unequal.
inline std::vector<std::vector<int>> host_layouts(int num_ranks) {
  std::vector<std::vector<int>> layouts(6);
  for (int rank = 0; rank < num_ranks; ++rank) {
    layouts[0].push_back(0);
    layouts[1].push_back(rank);
    layouts[2].push_back(rank / 2);
    layouts[3].push_back(rank < (num_ranks + 1) / 2 ? 0 : 1);
    layouts[4].push_back(rank % 2);
    layouts[5].push_back(rank == 0 ? 7 : rank % 3);
  }
  return layouts;
}

/// The layouts that make a difference to an algorithm.
inline std::vector<std::vector<int>> layouts_for(std::string_view algorithm, int num_ranks) {
  if (algorithm.starts_with("hierarchical") || algorithm == "two_level")
    return host_layouts(num_ranks);
  return {std::vector<int>(static_cast<std::size_t>(num_ranks), 0)};
}

/// Roots worth trying.
inline std::vector<int> roots_for(Collective collective, int num_ranks) {
  std::vector<int> roots{0};
  if (!facts_of(collective).has_root) return roots;
  for (int root = 1; root < num_ranks; ++root) roots.push_back(root);
  return roots;
}

inline std::string describe(const Plan& plan) {
  return std::string{name_of(plan.collective)} + ' ' + plan.algorithm + ' ' +
         std::to_string(plan.num_ranks) + " ranks root " + std::to_string(plan.root);
}

/// Every plan that the generators can make on `num_ranks`.
inline void for_each_plan(int num_ranks, const std::function<void(const Plan&)>& visit) {
  for (const Collective collective : all_collectives)
    for (const std::string_view name : algorithm_names(collective))
      for (const int root : roots_for(collective, num_ranks))
        for (const auto& hosts : layouts_for(name, num_ranks))
          visit(make_plan(collective, name, hosts, root));
}

}  // namespace shardmark
