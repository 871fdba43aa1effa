#pragma once

#include <cstdint>

namespace shardmark::cuda {

/// How bytes get from one rank's GPU to another's.
enum class Path : std::uint8_t {
  nccl,      ///< NCCL on the ranks' GPUs
  staged,    ///< through host memory and the ranks' own transport; any number of ranks on one GPU
  mpi_cuda,  ///< by an MPI that takes device addresses
};

}  // namespace shardmark::cuda
