#pragma once

// cuBLASLt.

#include "core/cuda/translate/call.hpp"

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace shardmark::cuda {

/// Runs MatmulCalls. The algorithm for a shape is chosen once, by the library's heuristic, and
/// kept.
class MatmulLibrary {
 public:
  MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;
  ~MatmulLibrary();

  /// What NVIDIA advises for Hopper and later.
  static constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;
  /// Enqueues the call; `workspace` has workspace_bytes, for this stream alone.
  void run(const MatmulCall& call, std::byte* workspace, cudaStream_t stream);

 private:
  /// All that an algorithm depends on.
  using Key = std::tuple<DType, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, bool, bool, bool, bool, bool, int>;
  struct Plan {
    cublasLtMatmulDesc_t description{nullptr};
    cublasLtMatrixLayout_t a{nullptr}, b{nullptr}, d{nullptr};
    cublasLtMatmulAlgo_t algorithm{};
  };
  static Key key_of(const MatmulCall& call);
  [[nodiscard]] Plan plan_of(const MatmulCall& call) const;

  cublasLtHandle_t handle_{nullptr};
  std::map<Key, Plan> plans_;
};

}  // namespace shardmark::cuda
