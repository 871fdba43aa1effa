#pragma once

#include "core/cpu/kernels_internal.hpp"
#include "core/ops.hpp"

#include <cstdint>
#include <memory>

namespace shardmark::kernels {

struct SgemmSizes {
  std::int64_t m, n, k;
  float alpha{1.0F};
  bool accumulate{false};
};
struct SgemmOperand {
  const float* data;
  std::int64_t stride;
  bool transposed{false};
};
struct SgemmResult {
  float* data;
  std::int64_t stride;
};
/// c_mn = alpha op(a)_mk op(b)_kn [+ c], row major, for the small products inside attention.
void sgemm(const SgemmSizes& sizes, const SgemmOperand& a, const SgemmOperand& b,
           const SgemmResult& c);

/// Runs Matmul ops; keeps oneDNN primitives per problem and the last packed b.
class MatmulRunner {
 public:
  MatmulRunner();
  MatmulRunner(const MatmulRunner&) = delete;
  MatmulRunner& operator=(const MatmulRunner&) = delete;
  ~MatmulRunner();

  /// Returns oneDNN's name of the implementation; the string lives as long as this object.
  const char* run(const Matmul& op, const Context& context);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

[[nodiscard]] std::int64_t matmul_scratch_bytes(const Matmul& op);

}  // namespace shardmark::kernels
