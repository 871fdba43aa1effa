#pragma once

#include "core/record.hpp"

#include <cstddef>
#include <vector>

namespace shardmark {

/// Keeps the kernel records of a profiled pass.
class HostCollector final : public KernelSink {
 public:
  /// Room for `capacity` records is taken at once, so that nothing is allocated while ops run;
  /// beyond it the collector grows.
  explicit HostCollector(std::size_t capacity = 1U << 15U) { records_.reserve(capacity); }

  void on_kernel(const KernelRecord& record) override { records_.push_back(record); }

  /// In the order in which they were reported.
  [[nodiscard]] const std::vector<KernelRecord>& records() const { return records_; }
  /// Forgets the records and keeps the room.
  void clear() { records_.clear(); }

 private:
  std::vector<KernelRecord> records_;
};

}  // namespace shardmark
