#include "core/cuda/rank_gpu.hpp"

#include "core/cuda/backend.hpp"
#include "core/cuda/check.cuh"
#include "core/cuda/device_map.hpp"
#include "core/cuda/gpu.hpp"
#include "core/cuda/gpu_facts.cuh"
#include "core/cuda/mpi_support.hpp"
#include "core/cuda/nccl.hpp"
#include "core/cuda/probe.hpp"

#include <exception>
#include <optional>

namespace shardmark::cuda {
namespace {

/// Which piece this rank lacks for GPUs by this path; empty if none.
std::string why_not_here(Transport& transport, Path path) {
  if (std::string why = why_no_cuda(); !why.empty()) return why;
  if (transport.size() == 1) return {};
  if (path == Path::nccl) return nccl_facts().missing;
  if (path == Path::mpi_cuda) return why_no_mpi_cuda(transport.name(), ask_mpi_for_cuda());
  return {};
}

}  // namespace

std::string why_no_cuda() { return why_no_gpu(); }

}  // namespace shardmark::cuda
