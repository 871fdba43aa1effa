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
  /// Waits for all streams; throws the first error of what ran on them. Frees all marks.
  virtual void synchronize() = 0;

  /// A place on a stream, until the next `synchronize`.
  using Mark = std::int32_t;
  /// Only `timed` marks know when they were reached.
  virtual Mark mark(Lane stream, bool timed) = 0;
  /// Whether all before it on its stream is complete. Never blocks; throws the first error of what
  /// ran.
  [[nodiscard]] virtual bool is_complete(Mark mark) = 0;
  /// From one timed mark to another, both complete; nanoseconds, negative if the other was first.
  [[nodiscard]] virtual std::int64_t ns_between(Mark from, Mark to) = 0;

  /// Page-locked memory of the host, which copies of a stream may use (MemoryCopy in either
  /// direction).
  virtual std::byte* allocate_host(std::int64_t bytes) = 0;
  virtual void free_host(std::byte* data) noexcept = 0;

  /// What went wrong between GPUs, as far as is known by now; empty if nothing. Never blocks.
  [[nodiscard]] virtual std::string find_communication_error() { return {}; }
  /// Gives up communication in flight, so that streams come to an end.
  virtual void abort_communication() noexcept {}
};

}  // namespace shardmark::cuda
