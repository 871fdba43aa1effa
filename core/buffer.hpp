#pragma once

#include "core/tensor.hpp"

#include <utility>

namespace shardmark {

class Rank;

/// Owns the memory of one tensor and gives it back on destruction, in submission order. Move-only.
/// Must not outlive its Rank.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Rank& rank, const Tensor& tensor, Category category)
      : rank_{&rank}, tensor_{tensor}, category_{category} {}
  /// A view of memory that is another's, or of none: see Rank::share and Rank::omit.
  explicit Buffer(const Tensor& tensor) : tensor_{tensor} {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// The whole buffer; an absent tensor for a default-constructed Buffer.
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  [[nodiscard]] Category category() const { return category_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(rank_, other.rank_);
    std::swap(tensor_, other.tensor_);
    std::swap(category_, other.category_);
  }
  Rank* rank_{nullptr};
  Tensor tensor_{};
  Category category_{Category::activation};
};

}  // namespace shardmark
