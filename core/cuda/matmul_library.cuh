#pragma once

// cuBLASLt.

#include "core/cuda/translate/call.hpp"

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace shardmark::cuda {

/// What the manual of cuBLAS advises (cublasSetWorkspace): 32 MiB on Hopper and on Blackwell of
/// data centres, 12 MiB on other Blackwell, 4 MiB elsewhere.
[[nodiscard]] constexpr std::int64_t advised_workspace_bytes(int major) {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  if (major == 9 || major == 10) return 32 * mebibyte;
  return major > 10 ? 12 * mebibyte : 4 * mebibyte;
}

/// Runs MatmulCalls. The algorithm for a shape is chosen once, by the library's heuristic, and
/// kept.
class MatmulLibrary {
 public:
  /// For devices of this major compute capability.
  explicit MatmulLibrary(int major);
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;
  ~MatmulLibrary();

  /// Memory that algorithms may use.
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Enqueues the call; `workspace` has workspace_bytes(), for this stream alone.
  void run(const MatmulCall& call, std::byte* workspace, cudaStream_t stream);

 private:
  /// All that an algorithm depends on.
  using Key = std::tuple<DType, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, bool, bool, bool, bool, bool, int,
                         std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  struct Plan {
    cublasLtMatmulDesc_t description{nullptr};
    cublasLtMatrixLayout_t a{nullptr}, b{nullptr}, d{nullptr};
    cublasLtMatmulAlgo_t algorithm{};
  };
  static Key key_of(const MatmulCall& call);
  [[nodiscard]] Plan plan_of(const MatmulCall& call) const;

  std::int64_t workspace_bytes_;
  cublasLtHandle_t handle_{nullptr};
  std::map<Key, Plan> plans_;
};

}  // namespace shardmark::cuda
