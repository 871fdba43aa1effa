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
/// Totals per (rank, path, op, implementation), in order of first appearance.
[[nodiscard]] std::vector<KernelSummary> summarize_kernels(const std::vector<RankTrace>& traces);

/// Bytes that carry a trace from one rank to another.
[[nodiscard]] std::string pack(const RankTrace& trace);
[[nodiscard]] RankTrace unpack(const std::string& bytes);

}  // namespace shardmark::bench
