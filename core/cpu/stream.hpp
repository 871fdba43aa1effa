#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardmark {

/// Copies pieces of a result too large for the caches past them: memory is then written without
/// being read first. Not for memory that has just been read: it is in the cache, and writing past
/// that takes twice the time. The destructor makes what was written visible before anything that
/// follows.
class Streaming {
 public:
  /// Streams if `bytes`, the size of the whole result, is large.
  explicit Streaming(std::int64_t bytes) : streams_{bytes >= threshold_bytes} {}
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;
#if defined(__SSE2__)
  ~Streaming() {
    if (streams_) _mm_sfence();
  }

  void copy(const std::byte* from, std::byte* to, std::int64_t bytes) const {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % line);
    if (!streams_ || bytes < 2 * line) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      return;
    }
    const std::int64_t head = misaligned == 0 ? 0 : line - misaligned;
    std::memcpy(to, from, static_cast<std::size_t>(head));
    std::int64_t at = head;
    for (; at + line <= bytes; at += line)
      for (std::int64_t part = 0; part < line; part += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + part),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + part)));
    std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
  }
#else
  void copy(const std::byte* from, std::byte* to, std::int64_t bytes) const {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
#endif

 private:
  static constexpr std::int64_t threshold_bytes = std::int64_t{16} << 20;
  static constexpr std::int64_t line = 64;

  bool streams_;
};

}  // namespace shardmark
