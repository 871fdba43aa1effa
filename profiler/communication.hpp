#pragma once

#include "profiler/timeline.hpp"

#include <string>
#include <vector>

namespace shardmark {

/// How a kernel is known to communicate. Only kernels are asked: copies and sets are memory.
enum class CommRule {
  automatic,  ///< by metadata or launch-time annotation, else by every name that is known
  nccl,       ///< the name contains nccl, rccl or hccl
  wide,       ///< as nccl, and names of expert-parallel and custom collectives
};

/// Classes of device work that the accounting tells apart.
enum class WorkClass : std::uint8_t { compute, communication, memory };

/// Class of every event of `timeline`, in order. Copies between devices are memory here as they are
/// in the file; they are listed apart. `patterns`: regular expressions (ECMAScript, any case) of
/// further kernels that communicate, under every rule; they see the first 2048 characters of a
/// name. InputError names one that is not valid.
///
/// CommRule::automatic believes metadata but for kernels of the tensor library, which a collective
/// runs around itself to lay out its tensors, and takes no kernel that a compiler named after the
/// operations it fused ("triton_poi_fused_all_gather_into_tensor_3") for communication.
[[nodiscard]] std::vector<WorkClass> classify(const Timeline& timeline, CommRule rule,
                                              const std::vector<std::string>& patterns);

/// The collective that a kernel's name tells, or empty: all_reduce, reduce_scatter, all_gather,
/// all_to_all, send_recv, broadcast, gather, scatter, reduce, barrier; of expert parallelism
/// dispatch, combine, notify. The same words for what metadata says (kind_of_call); send and recv
/// are both send_recv there, CommunicationCall::kind tells which.
[[nodiscard]] std::string kind_of_kernel(const std::string& name);
[[nodiscard]] std::string kind_of_call(const CommunicationCall& call);

/// Names of kernels that are taken for compute but look like communication, once each.
[[nodiscard]] std::vector<std::string> suspicious_kernels(const Timeline& timeline,
                                                          const std::vector<WorkClass>& classes);

}  // namespace shardmark
