#pragma once

#include "core/record.hpp"

#include <memory>

namespace shardmark {

/// A sink that opens an NVTX range in domain "shardmark" around each op where it runs, for Nsight
/// Systems and other tools: message `path/op`, category the lane, colour by kind, payload the FLOPs
/// of a compute op (double) or the bytes on the wire of a communication (unsigned 64-bit). The
/// ranges are start/end pairs, since communication on one lane overlaps ops of others.
///
/// Null when built without NVTX or when no tool is attached: then there is nothing to pay for. One
/// per rank.
[[nodiscard]] std::unique_ptr<KernelSink> make_nvtx_ranges();

}  // namespace shardmark
