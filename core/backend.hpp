#pragma once

#include "core/record.hpp"
#include "core/types.hpp"

#include <cstddef>
#include <cstdint>

namespace shardmark {

/// A device as ops see it. One per rank, used from one thread. Run-time interface on purpose: the
/// unit of work is microseconds, a virtual call is nanoseconds.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// Memory for a buffer, aligned to 64 bytes, contents unspecified; null where there is no storage
  /// (record). Throws Error naming the size when there is not enough.
  virtual std::byte* allocate(std::int64_t bytes, Category category) = 0;
  /// Gives memory back once everything submitted so far has run. Never throws.
  virtual void deallocate(std::byte* data, std::int64_t bytes) noexcept = 0;

  /// Appends the op to its lane. Never blocks and never runs the op's peers; errors of ops that
  /// already ran are thrown by a later execute or synchronize, with the op's path.
  virtual void execute(const OpRecord& record) = 0;
  /// Runs every lane to its end; rethrows the first error of a lane.
  virtual void synchronize() = 0;

  /// Host copies of a contiguous tensor's bytes, ordered after everything submitted so far.
  virtual void write(const Tensor& to, const void* from) = 0;
  virtual void read(const Tensor& from, void* to) = 0;

  /// Where a new Rank starts to number its fences. Above all fences seen so far where the backend
  /// keeps their state, so that one Rank may follow another (not two at a time).
  [[nodiscard]] virtual std::uint32_t first_fence() const { return 1; }
};

}  // namespace shardmark
