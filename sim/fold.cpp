#include "sim/fold.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace shardmark {
namespace {

constexpr std::array<Axis, num_axes> all_axes{Axis::dp, Axis::pp, Axis::cp, Axis::ep, Axis::tp};

/// Numbers equal signatures alike, in the order in which they come.
class Numbering {
 public:
  int operator()(const std::vector<int>& signature) {
    return numbers_.try_emplace(signature, size()).first->second;
  }
  [[nodiscard]] int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::map<std::vector<int>, int> numbers_;
};

/// One round of refinement: ranks keep a colour in common if their groups on all axes look alike.
class Round {
 public:
  Round(const Mesh& mesh, int ranks_per_node, const std::vector<int>& colours)
      : mesh_{mesh},
        ranks_per_node_{ranks_per_node},
        colours_{colours},
        views_(num_axes, std::vector<View>(colours.size())) {}

  std::vector<int> refined() {
    Numbering numbering;
    std::vector<int> result;
    for (std::size_t rank = 0; rank < colours_.size(); ++rank) {
      std::vector<int> signature{colours_[rank]};
      for (const Axis axis : all_axes) {
        const Group group = mesh_.group(static_cast<int>(rank), axis);
        const View& view = view_of(group);
        signature.push_back(view.number);
        // A part of the group must look the same from all ranks of a colour: where members
        // differ, only their places say which part it is.
        if (!view.uniform && axis != Axis::dp) signature.push_back(group.position);
      }
      result.push_back(numbering(signature));
    }
    return result;
  }

 private:
  /// On which node each member of a group is, counted from the first one's, and its colour.
  struct View {
    int number{-1};
    bool uniform{true};
  };

  const View& view_of(const Group& group) {
    View& view =
        views_[static_cast<std::size_t>(group.axis)][static_cast<std::size_t>(group.world_rank(0))];
    if (view.number >= 0) return view;
    std::vector<int> members;
    for (int member = 0; member < group.size; ++member) {
      members.push_back(group.world_rank(member) / ranks_per_node_ -
                        group.world_rank(0) / ranks_per_node_);
      members.push_back(colours_[static_cast<std::size_t>(group.world_rank(member))]);
      view.uniform = view.uniform && members.end()[-2] == 0 && members.end()[-1] == members[1];
    }
    view.number = numbering_(members);
    return view;
  }

  const Mesh& mesh_;
  int ranks_per_node_;
  const std::vector<int>& colours_;
  Numbering numbering_;
  std::vector<std::vector<View>> views_;  ///< by axis, first rank of the group
};

}  // namespace

Folding unfolded(int num_ranks) {
  Folding folding;
  folding.class_of.resize(static_cast<std::size_t>(num_ranks));
  std::iota(folding.class_of.begin(), folding.class_of.end(), 0);
  folding.representatives = folding.class_of;
  return folding;
}

Folding fold(const Mesh& mesh, int ranks_per_node, std::span<const Axis> alike) {
  SHARDMARK_CHECK(ranks_per_node > 0, "ranks_per_node is ", ranks_per_node);
  Numbering numbering;
  Folding folding;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<int> coordinates;
    for (const Axis axis : all_axes)
      if (std::ranges::find(alike, axis) == alike.end())
        coordinates.push_back(mesh.coordinate(rank, axis));
    folding.class_of.push_back(numbering(coordinates));
  }
  for (int num_classes = 0; num_classes <= std::ranges::max(folding.class_of);) {
    num_classes = std::ranges::max(folding.class_of) + 1;
    folding.class_of = Round{mesh, ranks_per_node, folding.class_of}.refined();
  }
  for (int rank = 0; rank < mesh.size(); ++rank)
    if (folding.class_of[static_cast<std::size_t>(rank)] == static_cast<int>(folding.num_classes()))
      folding.representatives.push_back(rank);
  return folding;
}

}  // namespace shardmark
