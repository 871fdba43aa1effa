#include "core/cuda/mpi_support.hpp"

#include "core/error.hpp"

#include <dlfcn.h>

namespace shardmark::cuda {

// Not every MPI declares the function, so it is looked up among what is loaded.
MpiAnswer ask_mpi_for_cuda() {
  using Query = int (*)();
  const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  if (query == nullptr) return MpiAnswer::silent;
  return query() == 1 ? MpiAnswer::yes : MpiAnswer::no;
}

std::string why_no_mpi_cuda(std::string_view transport, MpiAnswer answer) {
  constexpr std::string_view instead = "; use --transport nccl or --transport staged";
  if (transport != "mpi")
    return message("mpi-cuda needs ranks that are processes under mpirun, not ", transport,
                   instead);
  if (answer == MpiAnswer::no)
    return message(
        "this MPI was built, or is set, not to take addresses of GPU memory "
        "(MPIX_Query_cuda_support)",
        instead);
  if (answer == MpiAnswer::silent)
    return message(
        "this MPI does not say whether it takes addresses of GPU memory (it has no "
        "MPIX_Query_cuda_support)",
        instead);
  return {};
}

}  // namespace shardmark::cuda
