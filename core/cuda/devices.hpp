#pragma once

// What a device could do at most, by its name: the denominator of MFU. A device that is not here
// has no MFU rather than a guessed one.

#include "core/types.hpp"

#include <span>
#include <string>
#include <string_view>

namespace shardmark::cuda {

/// Peaks as the vendor states them, without sparsity, in 1e12 FLOP/s; 0: not stated. bf16 and f16
/// with sums in f32, f64 and tf32 on tensor cores where there are any, f32 without them.
struct DevicePeaks {
  std::string_view name;  ///< as cudaGetDeviceProperties has it, without "NVIDIA "; HIP's of AMD
  double bf16_tflops{0}, tf32_tflops{0}, f32_tflops{0}, f64_tflops{0};
  double memory_GBps{0};  ///< 1e9 bytes a second
  std::string_view source;
};
[[nodiscard]] std::span<const DevicePeaks> known_devices();

/// A number with where it is from, or the reason why there is none.
struct Peak {
  double value{0};
  std::string source;
  std::string unknown;  ///< empty if there is a value
};
/// 1e12 FLOP/s of matmuls on operands of `dtype`; with `allow_tf32`, f32 ones round theirs.
[[nodiscard]] Peak peak_tflops(std::string_view device_name, DType dtype, bool allow_tf32 = false);
[[nodiscard]] Peak peak_memory_GBps(std::string_view device_name);

}  // namespace shardmark::cuda
