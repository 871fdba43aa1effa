#pragma once

// What an attention computes, cut into rectangles of query rows and key rows in which a query sees
// a band around a diagonal: the only masks that cuDNN's fused attention has.

#include "core/ops.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace shardmark::cuda {

/// Rows [first_query, first_query + num_queries) of each sequence and the keys that they see, of
/// rows [first_key, first_key + num_keys). Query i of these sees key j of these if i - left_bound <
/// j <= i + right_bound, and each sees at least one.
struct Band {
  std::int64_t first_query{0}, num_queries{0}, first_key{0}, num_keys{0};
  std::optional<std::int64_t> left_bound{}, right_bound{};
  bool operator==(const Band&) const = default;
};

/// Bands that together hold every pair of a query and a key that it sees, once. Nothing if some
/// mask is no band: runs of places with different strides that see each other in part.
[[nodiscard]] std::optional<std::vector<Band>> bands_of(const AttentionShape& shape);

}  // namespace shardmark::cuda
