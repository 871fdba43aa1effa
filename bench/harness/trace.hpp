#pragma once

#include "bench/harness/result.hpp"
#include "bench/harness/session.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// The timeline of one profiled iteration: every kernel record joined with its op.
[[nodiscard]] RankTrace make_trace(int rank, const ProfiledIteration& iteration);
/// Where the window went, with the residual of the time identity.
[[nodiscard]] TimeSplit split_window(const ProfiledIteration& iteration);
/// A rank's communication time, cut in two: `transfer` sums over its collectives the shortest
/// duration among the members (a proxy for moving the bytes once everybody has arrived; valid since
/// every member has to join), `wait` is the rest of its own durations.
struct Waiting {
  double transfer_us{0}, wait_us{0};
};
[[nodiscard]] Waiting waiting_of(const std::vector<RankTrace>& traces, std::size_t rank);
/// Sum of the intervals on one lane, microseconds.
[[nodiscard]] double time_on(const RankTrace& trace, Lane lane);
/// Totals per (rank, path, op, implementation), in order of first appearance.
[[nodiscard]] std::vector<KernelSummary> summarize_kernels(const std::vector<RankTrace>& traces);

/// Bytes that carry a trace from one rank to another.
[[nodiscard]] std::string pack(const RankTrace& trace);
[[nodiscard]] RankTrace unpack(const std::string& bytes);

}  // namespace shardmark::bench
