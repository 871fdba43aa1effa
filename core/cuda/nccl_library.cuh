#pragma once

// NCCL's functions as a table: the library is loaded when it is needed, so that programs start
// without it, and tests have a table of their own.

#include "core/cuda/translate/call.hpp"

#include <nccl.h>

#include <string>
#include <string_view>

namespace shardmark::cuda {

struct NcclFunctions {
  decltype(&ncclGetVersion) get_version{nullptr};
  decltype(&ncclGetErrorString) get_error_string{nullptr};
  decltype(&ncclGetLastError) get_last_error{nullptr};
  decltype(&ncclGetUniqueId) get_unique_id{nullptr};
  decltype(&ncclCommInitRankConfig) init{nullptr};
  decltype(&ncclCommGetAsyncError) get_async_error{nullptr};
  decltype(&ncclCommFinalize) finalize{nullptr};
  decltype(&ncclCommDestroy) destroy{nullptr};
  decltype(&ncclCommAbort) abort{nullptr};
  decltype(&ncclGroupStart) group_start{nullptr};
  decltype(&ncclGroupEnd) group_end{nullptr};
  decltype(&ncclAllReduce) all_reduce{nullptr};
  decltype(&ncclAllGather) all_gather{nullptr};
  decltype(&ncclReduceScatter) reduce_scatter{nullptr};
  decltype(&ncclBroadcast) broadcast{nullptr};
  decltype(&ncclReduce) reduce{nullptr};
  decltype(&ncclSend) send{nullptr};
  decltype(&ncclRecv) receive{nullptr};
};

/// What has become of loading the library: its functions, or the reason why there are none.
struct NcclLibrary {
  NcclFunctions functions;
  std::string missing;  ///< empty if all functions are there
};
/// Loads it where the system finds a library of this name; stays loaded.
[[nodiscard]] NcclLibrary load_nccl(const char* file_name = "libnccl.so.2");

[[nodiscard]] ncclDataType_t nccl_type_of(DType dtype);
[[nodiscard]] ncclRedOp_t nccl_op_of(Reduction reduction);
/// "ncclAllReduce"
[[nodiscard]] std::string_view name_of(NcclFunction function);
/// The NCCL function of the call, with its arguments; returns what it returns.
[[nodiscard]] ncclResult_t enqueue(const NcclFunctions& functions, const NcclCall& call,
                                   ncclComm_t communicator, cudaStream_t stream);

}  // namespace shardmark::cuda
