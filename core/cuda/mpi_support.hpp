#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardmark::cuda {

/// What the MPI library of this process says about addresses of GPU memory.
enum class MpiAnswer : std::uint8_t {
  yes,
  no,
  silent,  ///< it has no function that would say
};
/// Asks the library (MPIX_Query_cuda_support of Open MPI and MPICH). MPI must be initialized.
[[nodiscard]] MpiAnswer ask_mpi_for_cuda();

/// Why bytes cannot go by an MPI that takes device addresses, over a transport of this name ("mpi",
/// "threads"). Empty if they can.
[[nodiscard]] std::string why_no_mpi_cuda(std::string_view transport, MpiAnswer answer);

}  // namespace shardmark::cuda
