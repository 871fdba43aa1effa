#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace shardmark {

/// Element types. Matmuls of bf16 accumulate in f32; weight gradients, norm statistics and losses
/// are always f32; i32 holds token ids. Layers compute in f32 and bf16; collectives move all of
/// them, and reduce f16 and bf16 in f32.
enum class DType : std::uint8_t { f32, bf16, i32, f64, f16, i8 };
inline constexpr std::size_t num_dtypes = 6;

/// Bytes per element.
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  constexpr std::array<std::int64_t, num_dtypes> sizes{4, 2, 4, 8, 2, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}
[[nodiscard]] std::string_view name_of(DType dtype);

/// Axes of the device mesh, outermost first; tp is innermost so that its ranks are neighbours.
/// "Axis" is always a mesh axis; a tensor has "dims".
enum class Axis : std::uint8_t { dp, pp, cp, ep, tp };
inline constexpr std::size_t num_axes = 5;
[[nodiscard]] std::string_view name_of(Axis axis);

/// A lane is an in-order queue: a CUDA stream, a CPU executor queue, a resource of the simulator,
/// a row of the timeline. Ops on one lane run in submission order; only fences order two lanes.
enum class Lane : std::uint8_t {
  compute,
  tp,
  cp,
  ep,
  dp,
  pp_fwd_send,
  pp_fwd_recv,
  pp_bwd_send,
  pp_bwd_recv,
  copy,
};
inline constexpr std::size_t num_lanes = 10;
[[nodiscard]] std::string_view name_of(Lane lane);
[[nodiscard]] constexpr std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

/// What a buffer is for; the memory timeline is split by it.
enum class Category : std::uint8_t { weight, activation, gradient, communication, workspace };
inline constexpr std::size_t num_categories = 5;
[[nodiscard]] std::string_view name_of(Category category);

/// Row-major extents of a tensor, one to four of them.
class Shape {
 public:
  static constexpr std::size_t max_dims = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);

  [[nodiscard]] std::size_t num_dims() const { return num_dims_; }
  [[nodiscard]] std::int64_t operator[](std::size_t dim) const { return extents_[dim]; }
  void set(std::size_t dim, std::int64_t extent) { extents_[dim] = extent; }
  /// Number of elements; 0 for a default-constructed shape.
  [[nodiscard]] std::int64_t numel() const { return num_dims_ == 0 ? 0 : rows() * cols(); }
  /// Every kernel sees a tensor as a matrix: all dims but the last, and the last.
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t cols() const { return num_dims_ == 0 ? 0 : extents_[num_dims_ - 1]; }
  [[nodiscard]] bool operator==(const Shape&) const = default;
  /// "1024x2048"
  [[nodiscard]] std::string to_string() const;

 private:
  std::array<std::int64_t, max_dims> extents_{};
  std::uint8_t num_dims_{0};
};

}  // namespace shardmark
