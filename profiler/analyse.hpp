#pragma once

#include "core/record.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace shardmark {

/// [start, end) in nanoseconds.
struct Span {
  std::int64_t start_ns{0}, end_ns{0};
};
/// Sorted, disjoint, empty spans dropped.
[[nodiscard]] std::vector<Span> united(std::vector<Span> spans);
/// Both sides united.
[[nodiscard]] std::vector<Span> intersected(std::span<const Span> a, std::span<const Span> b);
/// What lies in `a` and not in `b`; both united.
[[nodiscard]] std::vector<Span> subtracted(std::span<const Span> a, std::span<const Span> b);
[[nodiscard]] std::int64_t length_ns(std::span<const Span> united);

/// Time of one rank's kernels within a window, from unions of intervals:
///   comp = |COMP|, comm = |COMM|, overlapped = |COMM n COMP|, exposed_comm = |COMM \ COMP|.
/// Copies between devices do not exist on the CPU, so mem is not counted here.
struct Occupancy {
  std::int64_t comp_ns{0}, comm_ns{0}, overlapped_ns{0}, exposed_comm_ns{0};
};
/// Records are cut to the window.
[[nodiscard]] Occupancy occupancy(std::span<const KernelRecord> records, const Span& window);

}  // namespace shardmark
