#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace shardmark {

/// Memory that is faulted in once, in huge pages where the system has them, and then reused: a page
/// fault inside a timed region costs more than most kernels. Not thread-safe: one per rank.
class Arena {
 public:
  /// Reserves address space for `capacity_bytes`; no memory is used until `prefault`.
  explicit Arena(std::int64_t capacity_bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Makes the first `bytes` resident. Later calls only add to it.
  void prefault(std::int64_t bytes);
  /// 64-byte aligned, first fit. Prefaults what it hands out. Throws Error naming what was asked
  /// for, what is in use and the capacity.
  [[nodiscard]] std::byte* allocate(std::int64_t bytes);
  void deallocate(std::byte* data) noexcept;

  [[nodiscard]] std::int64_t in_use() const { return in_use_; }
  /// Largest `in_use` since the last reset_peak.
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = in_use_; }
  [[nodiscard]] std::int64_t resident() const { return resident_; }

 private:
  std::byte* base_{nullptr};
  std::int64_t capacity_{0}, resident_{0}, in_use_{0}, peak_{0};
  std::map<std::int64_t, std::int64_t> free_;       ///< offset -> bytes, coalesced
  std::map<std::int64_t, std::int64_t> allocated_;  ///< offset -> bytes
};

}  // namespace shardmark
