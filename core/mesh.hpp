#pragma once

#include "core/types.hpp"

#include <array>
#include <compare>

namespace shardmark {

/// The ranks that differ only along one axis. Member i is world rank `first + i * stride`, so a
/// group is a value: equal on all its members except for `position`.
struct Group {
  Axis axis{Axis::tp};
  int first{0};
  int stride{1};
  int size{1};
  int position{0};  ///< where the owning rank stands in the group

  [[nodiscard]] int world_rank(int member) const { return first + member * stride; }
  /// The consecutive members [position / size * size, ...) as a group of their own, for tensors
  /// that only some neighbours share (replicated KV heads). `part_size` must divide `size`.
  [[nodiscard]] Group part(int part_size) const;
  /// "tp[0,1,2,3]"
  [[nodiscard]] std::string to_string() const;
};
/// Same members (position does not count).
[[nodiscard]] bool same_members(const Group& a, const Group& b);

/// A grid of ranks with named axes, tp innermost: neighbours in rank order share a tp group first.
class Mesh {
 public:
  struct Degrees {
    int dp{1}, pp{1}, cp{1}, ep{1}, tp{1};
  };
  explicit Mesh(const Degrees& degrees);

  [[nodiscard]] int size() const;
  [[nodiscard]] int degree(Axis axis) const { return degrees_[static_cast<std::size_t>(axis)]; }
  /// Coordinate of `rank` along `axis`.
  [[nodiscard]] int coordinate(int rank, Axis axis) const;
  [[nodiscard]] Group group(int rank, Axis axis) const;

 private:
  [[nodiscard]] int stride(Axis axis) const;
  std::array<int, num_axes> degrees_{};
};

}  // namespace shardmark
