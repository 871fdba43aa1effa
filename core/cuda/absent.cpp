#include "core/cuda/rank_gpu.hpp"
#include "core/error.hpp"

namespace shardmark::cuda {

std::string why_no_cuda() {
  return "this program was built without CUDA (cmake --preset cuda, with nvcc on PATH)";
}

std::unique_ptr<RankGpu> open_rank_gpu(Transport&, const RankGpuOptions&) {
  throw InputError{why_no_cuda()};
}

}  // namespace shardmark::cuda
