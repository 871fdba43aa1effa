#pragma once

// Measurements of a GPU that are no part of a program.

#include "core/types.hpp"

#include <cstddef>

namespace shardmark::cuda {

/// Best rate of matmuls over probe_shapes on the current device, 1e12 FLOP/s: of each shape the
/// median of five samples, on random data. Begins no further shape after two seconds. Throws Error
/// where no shape fits into the free memory.
[[nodiscard]] double measure_matmul_tflops(DType dtype, bool allow_tf32);

/// Memory of the current device of twice the size of its second-level cache.
class CacheFlusher {
 public:
  CacheFlusher();
  CacheFlusher(const CacheFlusher&) = delete;
  CacheFlusher& operator=(const CacheFlusher&) = delete;
  ~CacheFlusher();
  /// Writes it all, and waits for that.
  void flush();

 private:
  void* data_{nullptr};
  std::size_t bytes_{0};
};

}  // namespace shardmark::cuda
