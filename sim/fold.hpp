#pragma once

#include "core/mesh.hpp"

#include <span>
#include <vector>

namespace shardmark {

/// Ranks that do the same at the same times form a class; one of them is replayed for all.
struct Folding {
  std::vector<int> class_of;         ///< by rank
  std::vector<int> representatives;  ///< by class: its lowest rank

  [[nodiscard]] std::size_t num_ranks() const { return class_of.size(); }
  [[nodiscard]] std::size_t num_classes() const { return representatives.size(); }
};

/// Every rank on its own.
[[nodiscard]] Folding unfolded(int num_ranks);

/// Classes that give every rank exactly the times it has unfolded, if the ranks along the axes
/// `alike` run equal programs: op lists that differ only in the members of groups and in
/// `position`, and whose messages along such an axis go round (each to the member i places
/// further). Two ranks are in one class if they agree in their coordinates on all other axes, and
/// their groups have the same places on the nodes and members of the same classes.
///
/// Groups that are only a part of one of the mesh (Group::part), and exchanges with each member in
/// turn (all_to_all, gather, scatter), are exact on all axes but dp: where another axis' groups
/// span nodes, or hold several classes, their places are kept apart.
///
/// Colour refinement over the groups of the mesh: n log n in the number of ranks for each round,
/// and rounds are few.
[[nodiscard]] Folding fold(const Mesh& mesh, int ranks_per_node, std::span<const Axis> alike);

}  // namespace shardmark
