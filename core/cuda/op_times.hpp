#pragma once

#include "core/cuda/device.hpp"
#include "core/record.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace shardmark::cuda {

/// When each op ran, from timed marks before and after it on its stream. On the host's steady
/// clock: a mark on an idle stream is looked for until it is complete, so that it is late by no
/// more than one look (some microseconds).
class OpTimes {
 public:
  explicit OpTimes(Device& device) : device_{device} {}

  /// Relates the clocks, with a mark on the compute stream; again after each `collect`.
  void begin();
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  [[nodiscard]] std::int64_t begin_ns() const { return begin_ns_; }
  void add(const OpRecord& record, OpKind kind, Device::Mark from, Device::Mark to) {
    intervals_.push_back({record.seq, record.lane, kind, name_of(record.op).data(), from, to});
  }
  /// Appends what was added since `begin`. All streams are complete.
  void collect(std::vector<KernelRecord>& records);
  void clear();

 private:
  struct Interval {
    std::uint32_t op_seq;
    Lane lane;
    OpKind kind;
    const char* name;
    Device::Mark from, to;
  };

  Device& device_;
  bool has_begun_{false};
  Device::Mark origin_{0};
  std::int64_t begin_ns_{0}, origin_ns_{0};
  std::vector<Interval> intervals_;
};

/// Nanoseconds of [begin, end) in which nothing of `records` ran.
[[nodiscard]] std::int64_t idle_ns_of(std::span<const KernelRecord> records, std::int64_t begin_ns,
                                      std::int64_t end_ns);

}  // namespace shardmark::cuda
