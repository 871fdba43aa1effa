#pragma once

#include "core/cuda/device.hpp"

#include <memory>
#include <string>

namespace shardmark::cuda {

/// Which piece is missing for the use of GPU `index`: driver, device or an architecture that this
/// build has code for. Empty if none is.
[[nodiscard]] std::string why_no_gpu(int index = 0);

/// GPU `index` of this process through the CUDA runtime, cuBLASLt and cuDNN. Streams of lanes other
/// than compute have high priority, so that communication is not held up by long kernels. Throws
/// InputError with why_no_gpu. Its `run` throws Error for NcclGroup, which this version does not
/// do.
[[nodiscard]] std::unique_ptr<Device> open_gpu(int index = 0);

}  // namespace shardmark::cuda
