#include "core/cuda/probe_shapes.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark::cuda {

std::vector<ProbeShape> probe_shapes(DType dtype, std::int64_t free_bytes) {
  struct Extents {
    std::int64_t m, n, k;
  };
  std::vector<Extents> candidates{{2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 1024},
                                  {8192, 8192, 4096}, {4096, 8192, 8192}, {8192, 8192, 8192}};
  if (dtype != DType::f32)
    candidates.insert(
        candidates.end(),
        {{8192, 8192, 16384}, {16384, 8192, 8192}, {16384, 16384, 4096}, {16384, 16384, 16384}});
  std::vector<ProbeShape> shapes;
  for (const auto& [m, n, k] : candidates)
    if ((m * k + k * n + m * n) * size_of(dtype) <= free_bytes)
      for (const bool transpose_a : {true, false}) shapes.push_back({m, n, k, transpose_a});
  return shapes;
}

double flops_of(const ProbeShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double median_of(std::vector<double> values) {
  SHARDMARK_CHECK(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace shardmark::cuda
