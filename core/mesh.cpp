#include "core/mesh.hpp"

#include "core/error.hpp"

namespace shardmark {

Group Group::part(int part_size) const {
  SHARDMARK_CHECK(part_size > 0 && size % part_size == 0, "a group of ", size,
                  " does not split into parts of ", part_size);
  const int begin = position / part_size * part_size;
  return Group{axis, world_rank(begin), stride, part_size, position - begin};
}

std::string Group::to_string() const {
  std::string text{name_of(axis)};
  text += '[';
  for (int member = 0; member < size; ++member) {
    if (member > 0) text += ',';
    text += std::to_string(world_rank(member));
  }
  return text + ']';
}

bool same_members(const Group& a, const Group& b) {
  return a.axis == b.axis && a.first == b.first && a.size == b.size &&
         (a.size == 1 || a.stride == b.stride);
}

Mesh::Mesh(const Degrees& degrees)
    : degrees_{degrees.dp, degrees.pp, degrees.cp, degrees.ep, degrees.tp} {
  for (std::size_t axis = 0; axis < num_axes; ++axis)
    SHARDMARK_CHECK(degrees_[axis] >= 1, "the degree of axis ", name_of(static_cast<Axis>(axis)),
                    " is ", degrees_[axis], "; it must be at least 1");
}

int Mesh::size() const {
  int size = 1;
  for (const int degree : degrees_) size *= degree;
  return size;
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (std::size_t inner = static_cast<std::size_t>(axis) + 1; inner < num_axes; ++inner)
    stride *= degrees_[inner];
  return stride;
}

int Mesh::coordinate(int rank, Axis axis) const { return rank / stride(axis) % degree(axis); }

Group Mesh::group(int rank, Axis axis) const {
  SHARDMARK_CHECK(rank >= 0 && rank < size(), "rank ", rank, " is outside a mesh of ", size());
  const int position = coordinate(rank, axis);
  return Group{axis, rank - position * stride(axis), stride(axis), degree(axis), position};
}

}  // namespace shardmark
