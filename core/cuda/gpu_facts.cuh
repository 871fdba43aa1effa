#pragma once

#include "core/cuda/rank_gpu.hpp"

#include <string>
#include <vector>

namespace shardmark::cuda {

/// Bus ids of the GPUs that this process sees, "0000:17:00.0".
[[nodiscard]] std::vector<std::string> bus_ids();
/// Of GPU `index` of this process; without notices.
[[nodiscard]] GpuFacts facts_of(int index);

}  // namespace shardmark::cuda
