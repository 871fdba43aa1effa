#pragma once

// Errors of CUDA libraries as Errors: code, text and call. (Headers that need CUDA end in .cuh.)

#include "core/error.hpp"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>

#define SHARDMARK_CUDA(call)                                                                       \
  do {                                                                                             \
    const cudaError_t shardmark_code = (call);                                                     \
    if (shardmark_code != cudaSuccess)                                                             \
      throw ::shardmark::Error{::shardmark::message(#call, ": ", cudaGetErrorName(shardmark_code), \
                                                    ", ", cudaGetErrorString(shardmark_code)),     \
                               ::shardmark::message(__FILE__, ":", __LINE__)};                     \
  } while (false)

/// For destructors: says what failed and goes on.
#define SHARDMARK_CUDA_NOEXCEPT(call)                                                         \
  do {                                                                                        \
    const cudaError_t shardmark_code = (call);                                                \
    if (shardmark_code != cudaSuccess)                                                        \
      std::fprintf(stderr, "shardmark: %s: %s\n", #call, cudaGetErrorString(shardmark_code)); \
  } while (false)

#define SHARDMARK_CUBLAS(call)                                                           \
  do {                                                                                   \
    const cublasStatus_t shardmark_code = (call);                                        \
    if (shardmark_code != CUBLAS_STATUS_SUCCESS)                                         \
      throw ::shardmark::Error{                                                          \
          ::shardmark::message(#call, ": ", cublasLtGetStatusName(shardmark_code), ", ", \
                               cublasLtGetStatusString(shardmark_code)),                 \
          ::shardmark::message(__FILE__, ":", __LINE__)};                                \
  } while (false)
