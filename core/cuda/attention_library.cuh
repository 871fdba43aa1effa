#pragma once

// cuDNN's fused attention.

#include "core/cuda/device.hpp"
#include "core/cuda/translate/call.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

namespace shardmark::cuda {

/// Runs FusedAttention calls on the device that is current. cuDNN is loaded when this is made;
/// where it, its frontend (when this was built) or a GPU is missing, `support` says which. The
/// graph of a shape is built once and kept.
class AttentionLibrary {
 public:
  AttentionLibrary();
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;
  ~AttentionLibrary();

  /// Of any attention.
  [[nodiscard]] const AttentionSupport& support() const { return support_; }
  /// Of this one. The first time for a shape takes seconds: cuDNN compiles.
  [[nodiscard]] const AttentionSupport& support(const FusedAttention& call);
  /// Enqueues the call; `workspace` has support(call).workspace_bytes, for this stream alone.
  /// Throws Error if it has no support.
  void run(const FusedAttention& call, std::byte* workspace, cudaStream_t stream);

 private:
  struct Graphs;
  AttentionSupport support_;
  std::unique_ptr<Graphs> graphs_;  ///< null without support
};

/// What cuDNN's frontend says against the call on devices of compute capability `sm` (90, say),
/// without asking a device; empty if nothing. The device may still have no kernel for it.
[[nodiscard]] std::string objection_to(const FusedAttention& call, int sm);

}  // namespace shardmark::cuda
