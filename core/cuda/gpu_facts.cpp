#include "core/cuda/gpu_facts.cuh"

#include "core/cuda/check.cuh"
#include "core/cuda/nccl.hpp"

#include <dlfcn.h>

#include <array>

namespace shardmark::cuda {
namespace {

std::string bus_id_of(int index) {
  std::array<char, 32> text{};
  SHARDMARK_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index));
  return text.data();
}

/// 13000 is 13.0
std::string cuda_version_text(int version) {
  return message(version / 1000, '.', version % 1000 / 10);
}

/// "9.13.1", or the reason why there is none. The library is not needed to start the program.
std::string cudnn_version_text() {
  void* const library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "absent";
  using GetVersion = std::size_t (*)();
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "cudnnGetVersion"));
  if (get_version == nullptr) return "unknown";
  const std::size_t version = get_version();
  return message(version / 10000, '.', version % 10000 / 100, '.', version % 100);
}

std::vector<std::pair<std::string, std::string>> versions() {
  int driver = 0, runtime = 0;
  SHARDMARK_CUDA(cudaDriverGetVersion(&driver));
  SHARDMARK_CUDA(cudaRuntimeGetVersion(&runtime));
  const std::size_t cublas = cublasLtGetVersion();
  const NcclFacts nccl = nccl_facts();
  return {{"driver's CUDA", cuda_version_text(driver)},
          {"CUDA runtime", cuda_version_text(runtime)},
          {"cuBLASLt", message(cublas / 10000, '.', cublas % 10000 / 100, '.', cublas % 100)},
          {"cuDNN", cudnn_version_text()},
          {"NCCL", nccl.missing.empty() ? nccl_version_text(nccl.version) : "absent"}};
}

}  // namespace

std::vector<std::string> bus_ids() {
  int count = 0;
  SHARDMARK_CUDA(cudaGetDeviceCount(&count));
  std::vector<std::string> ids;
  for (int index = 0; index < count; ++index) ids.push_back(bus_id_of(index));
  return ids;
}

GpuFacts facts_of(int index) {
  cudaDeviceProp properties{};
  SHARDMARK_CUDA(cudaGetDeviceProperties(&properties, index));
  GpuFacts facts;
  facts.name = properties.name;
  facts.index = index;
  facts.bus_id = bus_id_of(index);
  facts.compute_capability = message(properties.major, '.', properties.minor);
  facts.num_sms = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  facts.versions = versions();
  facts.settings = nccl_settings();
  return facts;
}

}  // namespace shardmark::cuda
