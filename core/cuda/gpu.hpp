#pragma once

#include "core/cuda/communicators.hpp"
#include "core/cuda/device.hpp"

#include <memory>
#include <string>

namespace shardmark::cuda {

/// Which piece is missing for the use of GPU `index`: driver, device or an architecture that this
/// build has code for. Empty if none is.
[[nodiscard]] std::string why_no_gpu(int index = 0);

struct GpuSetup {
  /// Of the compute lane's stream. Those of the others always have high priority, so that
  /// communication is not held up by long kernels.
  bool high_priority{false};
  Communicators* communicators{nullptr};  ///< for NcclGroup; null: there is none
};
/// GPU `index` of this process through the CUDA runtime, cuBLASLt and cuDNN;
/// `setup.communicators` must outlive it. Throws InputError with why_no_gpu.
[[nodiscard]] std::unique_ptr<Device> open_gpu(int index = 0, const GpuSetup& setup = {});

}  // namespace shardmark::cuda
