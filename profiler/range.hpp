#pragma once

#include "core/record.hpp"

#include <cstdint>
#include <memory>

namespace shardmark {

/// A sink that opens an NVTX range in domain "shardmark" around each op where it runs (on a GPU:
/// where it is enqueued; tools project the range onto its kernels), for Nsight Systems and other
/// tools: message `path/op`, so that recipes group by phase, layer and micro-batch; category the
/// lane, which is the mesh axis; colour by kind; payload the op's FLOPs and bytes on the wire (a
/// registered schema; a tool without schemas gets the FLOPs of a compute op or the bytes of a
/// communication). The ranges are start/end pairs, since communication on one lane overlaps ops of
/// others.
///
/// Null when built without NVTX or when no tool is attached: then there is nothing to pay for. One
/// per rank.
[[nodiscard]] std::unique_ptr<KernelSink> make_nvtx_ranges();

/// A range of that domain around what happens during its lifetime, for `nsys profile
/// --capture-range=nvtx --nvtx-capture=NAME@shardmark`. Nothing where make_nvtx_ranges is null.
class NvtxWindow {
 public:
  explicit NvtxWindow(const char* name);
  NvtxWindow(const NvtxWindow&) = delete;
  NvtxWindow& operator=(const NvtxWindow&) = delete;
  ~NvtxWindow();

 private:
  void* domain_;
  std::uint64_t range_{0};
};

}  // namespace shardmark
