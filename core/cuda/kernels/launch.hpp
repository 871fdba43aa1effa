#pragma once

// Starts our own kernels on a device; the one door to kernels.cu. No CUDA header is needed here.

#include "core/cuda/kernels/kernel.hpp"

struct CUstream_st;

namespace shardmark::cuda {

/// A cudaStream_t.
using Stream = CUstream_st*;

/// Enqueues the kernel on the stream. Throws Error if it cannot be started (no driver, a launch
/// that the device does not allow); errors of a running kernel show at the next synchronization.
void start(const Kernel& kernel, const Launch& launch, Stream stream);

}  // namespace shardmark::cuda
