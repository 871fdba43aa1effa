#pragma once

// What is tried to find the best rate of matmuls; pure.

#include "core/types.hpp"

#include <cstdint>
#include <vector>

namespace shardmark::cuda {

/// A matmul of (m x k) and (k x n); `transpose_a` as cuBLASLt has it: rows of k elements are
/// contiguous in both operands.
struct ProbeShape {
  std::int64_t m{0}, n{0}, k{0};
  bool transpose_a{false};
};
/// Squares and longer ones, with operands of either layout, whose operands and result fit into
/// `free_bytes`; smaller ones first. Of f32 none above 8192: they would take too long.
[[nodiscard]] std::vector<ProbeShape> probe_shapes(DType dtype, std::int64_t free_bytes);
/// FLOPs of a matmul: 2 m n k.
[[nodiscard]] double flops_of(const ProbeShape& shape);
/// The middle one in order of size, of an even number the upper of both. There is at least one.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace shardmark::cuda
