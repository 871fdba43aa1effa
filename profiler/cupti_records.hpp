#pragma once

// What CUPTI says about the work of a GPU, as plain values, and how it becomes kernel records.

#include "core/record.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// A kernel, copy or set, on CUPTI's clock. What was launched together with an external id has the
/// same correlation.
struct CuptiWork {
  std::uint32_t correlation{0};
  std::string name;
  std::uint64_t start_ns{0}, end_ns{0};
};
struct CuptiLink {
  std::uint32_t correlation{0};
  std::uint64_t external{0};  ///< TimedOp::external
};
struct CuptiRecords {
  std::vector<CuptiWork> work;
  std::vector<CuptiLink> links;
  std::uint64_t num_dropped{0};
};

/// An op whose calls were enqueued under an external id.
struct TimedOp {
  std::uint64_t external{0};
  std::uint32_t seq{0};
  Lane lane{Lane::compute};
  OpKind kind{OpKind::compute};
};

struct JoinedWork {
  std::vector<KernelRecord> kernels;  ///< in order of their start
  std::uint64_t num_without_op{0};    ///< work that no op of `ops` has enqueued
  std::uint64_t num_impossible{0};    ///< without an end, or ended before it began
};
/// Records in any order; those of ops that are not in `ops` count as without op. A kernel's kind is
/// its op's, whatever its name. `clock_offset_ns` is added to CUPTI's times.
[[nodiscard]] JoinedWork join(const CuptiRecords& records, std::span<const TimedOp> ops,
                              std::int64_t clock_offset_ns);

/// The text for as long as the process runs, one copy of each.
[[nodiscard]] const char* kept_name(const std::string& name);

/// Two clocks, read in turn: of the host before and after, and CUPTI's between.
struct ClockReading {
  std::int64_t before_ns{0}, after_ns{0};
  std::uint64_t device_ns{0};
};
/// host = device + offset, by the reading that took the shortest; off by at most `bound_ns`.
struct ClockRelation {
  std::int64_t offset_ns{0}, bound_ns{0};
};
[[nodiscard]] ClockRelation relate(std::span<const ClockReading> readings);

}  // namespace shardmark
