#include "core/cuda/nccl_library.cuh"

#include "core/error.hpp"
#include "core/symbols.hpp"

#include <dlfcn.h>

namespace shardmark::cuda {
NcclLibrary load_nccl(const char* file_name) {
  NcclLibrary result;
  // Never closed: communicators have threads that run its code.
  void* const library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    result.missing = message("NCCL cannot be loaded: ", dlerror());
    return result;
  }
  Symbols symbols{library};
  NcclFunctions& f = result.functions;
  symbols.take(f.get_version, "ncclGetVersion");
  symbols.take(f.get_error_string, "ncclGetErrorString");
  symbols.take(f.get_last_error, "ncclGetLastError");
  symbols.take(f.get_unique_id, "ncclGetUniqueId");
  symbols.take(f.init, "ncclCommInitRankConfig");
  symbols.take(f.get_async_error, "ncclCommGetAsyncError");
  symbols.take(f.finalize, "ncclCommFinalize");
  symbols.take(f.destroy, "ncclCommDestroy");
  symbols.take(f.abort, "ncclCommAbort");
  symbols.take(f.group_start, "ncclGroupStart");
  symbols.take(f.group_end, "ncclGroupEnd");
  symbols.take(f.all_reduce, "ncclAllReduce");
  symbols.take(f.all_gather, "ncclAllGather");
  symbols.take(f.reduce_scatter, "ncclReduceScatter");
  symbols.take(f.broadcast, "ncclBroadcast");
  symbols.take(f.reduce, "ncclReduce");
  symbols.take(f.send, "ncclSend");
  symbols.take(f.receive, "ncclRecv");
  if (!symbols.missing().empty())
    result.missing =
        message(file_name, " has no ", symbols.missing(), ": NCCL 2.14 or later is needed");
  return result;
}

ncclDataType_t nccl_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::f64:
      return ncclFloat64;
    case DType::f16:
      return ncclFloat16;
    case DType::i8:
      return ncclInt8;
  }
  return ncclNumTypes;
}

ncclRedOp_t nccl_op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::prod:
      return ncclProd;
    case Reduction::max:
      return ncclMax;
    case Reduction::min:
      return ncclMin;
    case Reduction::avg:
      return ncclAvg;
  }
  return ncclNumOps;
}

std::string_view name_of(NcclFunction function) {
  switch (function) {
    case NcclFunction::all_reduce:
      return "ncclAllReduce";
    case NcclFunction::all_gather:
      return "ncclAllGather";
    case NcclFunction::reduce_scatter:
      return "ncclReduceScatter";
    case NcclFunction::broadcast:
      return "ncclBroadcast";
    case NcclFunction::reduce:
      return "ncclReduce";
    case NcclFunction::send:
      return "ncclSend";
    case NcclFunction::receive:
      return "ncclRecv";
  }
  return "?";
}

ncclResult_t enqueue(const NcclFunctions& functions, const NcclCall& call, ncclComm_t communicator,
                     cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(call.count);
  const ncclDataType_t type = nccl_type_of(call.dtype);
  const ncclRedOp_t op = nccl_op_of(call.reduction);
  switch (call.function) {
    case NcclFunction::all_reduce:
      return functions.all_reduce(call.from, call.to, count, type, op, communicator, stream);
    case NcclFunction::all_gather:
      return functions.all_gather(call.from, call.to, count, type, communicator, stream);
    case NcclFunction::reduce_scatter:
      return functions.reduce_scatter(call.from, call.to, count, type, op, communicator, stream);
    case NcclFunction::broadcast:
      return functions.broadcast(call.from, call.to, count, type, call.peer, communicator, stream);
    case NcclFunction::reduce:
      return functions.reduce(call.from, call.to, count, type, op, call.peer, communicator, stream);
    case NcclFunction::send:
      return functions.send(call.from, count, type, call.peer, communicator, stream);
    case NcclFunction::receive:
      return functions.receive(call.to, count, type, call.peer, communicator, stream);
  }
  return ncclInvalidArgument;
}

}  // namespace shardmark::cuda
