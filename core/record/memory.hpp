#pragma once

#include "core/record.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace shardmark {

/// Bytes allocated at one moment. Sizes are those asked for, without the arena's rounding.
struct MemoryPoint {
  std::uint32_t op_seq{0};  ///< number of ops submitted before
  std::array<std::int64_t, num_categories> bytes{};

  [[nodiscard]] std::int64_t operator[](Category category) const {
    return bytes[static_cast<std::size_t>(category)];
  }
  [[nodiscard]] std::int64_t total() const;
};

/// One rank's memory over its program.
struct MemoryTimeline {
  std::vector<MemoryPoint> points;  ///< one after every allocation and release
  MemoryPoint peak;                 ///< the first point with the largest total
  MemoryPoint end;                  ///< what is still allocated after the last record
};
[[nodiscard]] MemoryTimeline memory_timeline(std::span<const MemoryRecord> records);

}  // namespace shardmark
