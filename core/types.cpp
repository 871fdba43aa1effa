#include "core/types.hpp"

#include "core/error.hpp"

namespace shardmark {

std::string_view name_of(DType dtype) {
  static constexpr std::array<std::string_view, num_dtypes> names{"f32", "bf16", "i32",
                                                                  "f64", "f16",  "i8"};
  return names[static_cast<std::size_t>(dtype)];
}

std::string_view name_of(Axis axis) {
  static constexpr std::array<std::string_view, num_axes> names{"dp", "pp", "cp", "ep", "tp"};
  return names[static_cast<std::size_t>(axis)];
}

std::string_view name_of(Lane lane) {
  static constexpr std::array<std::string_view, num_lanes> names{
      "compute",     "tp",          "cp",          "ep",          "dp",
      "pp_fwd_send", "pp_fwd_recv", "pp_bwd_send", "pp_bwd_recv", "copy"};
  return names[index_of(lane)];
}

std::string_view name_of(Category category) {
  static constexpr std::array<std::string_view, num_categories> names{
      "weight", "activation", "gradient", "communication", "workspace"};
  return names[static_cast<std::size_t>(category)];
}

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  SHARDMARK_CHECK(extents.size() >= 1 && extents.size() <= max_dims,
                  "a shape has 1 to 4 dims, not ", extents.size());
  for (const std::int64_t extent : extents) {
    SHARDMARK_CHECK(extent >= 0, "extent ", extent, " of dim ", int{num_dims_}, " is negative");
    extents_[num_dims_++] = extent;
  }
}

std::int64_t Shape::rows() const {
  if (num_dims_ == 0) return 0;
  std::int64_t rows = 1;
  for (std::size_t dim = 0; dim + 1 < num_dims_; ++dim) rows *= extents_[dim];
  return rows;
}

std::string Shape::to_string() const {
  std::string text;
  for (std::size_t dim = 0; dim < num_dims_; ++dim) {
    if (dim > 0) text += 'x';
    text += std::to_string(extents_[dim]);
  }
  return text;
}

}  // namespace shardmark
