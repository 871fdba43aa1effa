#pragma once

// What the backend needs of a device, as an interface: a test has one that runs on the host, in any
// order that streams and events allow.

#include "core/cuda/translate/call.hpp"
#include "core/types.hpp"

#include <cstdint>
#include <string>

namespace shardmark::cuda {

/// Whether a device runs FusedAttention.
struct AttentionSupport {
  std::string why_not;              ///< empty if it does
  std::int64_t workspace_bytes{0};  ///< that the device takes for itself while one runs
};

/// A GPU with a stream for each lane. Everything but `synchronize` only enqueues; what is enqueued
/// on one stream runs in order, and streams are ordered by events only. Used from one thread.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Memory aligned to 256 bytes, which what follows on the stream may use (cudaMallocAsync).
  /// Throws Error naming the size when there is not enough.
  virtual std::byte* allocate(std::int64_t bytes, Lane stream) = 0;
  /// Gives it back when the stream comes here (cudaFreeAsync).
  virtual void free(std::byte* data, Lane stream) noexcept = 0;
  /// Of any attention, and of this one: the library may lack some shapes. The first question about
  /// a shape may take seconds. The reference holds until the next question.
  [[nodiscard]] virtual const AttentionSupport& fused_attention() = 0;
  [[nodiscard]] virtual const AttentionSupport& fused_attention(const FusedAttention& call) = 0;
  /// A call of a translation. An EventWait waits for the last EventRecord of its fence before it.
  virtual void run(const Call& call, Lane stream) = 0;
  /// Between host and device; the host's memory may be reused at once (to) or after the next
  /// synchronize (from).
  virtual void copy_to_device(std::byte* to, const void* from, std::int64_t bytes, Lane stream) = 0;
  virtual void copy_to_host(void* to, const std::byte* from, std::int64_t bytes, Lane stream) = 0;
  /// Waits for all streams; throws the first error of what ran on them.
  virtual void synchronize() = 0;
};

}  // namespace shardmark::cuda
