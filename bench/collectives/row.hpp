#pragma once

#include "bench/harness/result.hpp"
#include "collectives/collective.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// Who sends to whom in a send_recv; the other collectives have none.
enum class Pattern : std::uint8_t {
  none,
  ring,           ///< member i to member i + 1: nccl-tests' sendrecv
  ping,           ///< even members to the next one
  ping_pong,      ///< there and back; the time is half of it
  bidirectional,  ///< pairs, both ways at once
};
[[nodiscard]] std::string_view name_of(Pattern pattern);

/// What one row measures; equal on all ranks.
struct Point {
  Collective collective{Collective::all_reduce};
  Pattern pattern{Pattern::none};
  std::string algorithm{"native"};
  DType dtype{DType::f32};
  Reduction reduction{Reduction::sum};
  int root{0};
  bool in_place{false};
  std::int64_t count{0};       ///< elements as nccl-tests counts them: a block, or the whole buffer
  std::int64_t size_bytes{0};  ///< the larger buffer of a member
  std::string axis{"tp"};      ///< of --groups
  int group_size{1}, num_groups{1};
};

/// One call on one rank, split at the moment the last member arrived. Medians over the calls.
struct Wait {
  int rank{0};
  double wait_us{0};      ///< from this rank's arrival to the last one's
  double transfer_us{0};  ///< from the last arrival to this rank's end
};

/// The collective and a matrix product, alone and at once.
struct Overlap {
  double matmul_us{0}, collective_us{0}, together_us{0};
  double comp_tax_pct{0}, comm_tax_pct{0};
  bool progress_thread{false};  ///< --progress
  double efficiency{0};         ///< (matmul + collective - together) / the shorter of the two
};

/// A line of results.csv. Complete on rank 0.
struct Row {
  Point point;
  Status status{Status::ok};
  std::string reason;
  std::string chosen;  ///< algorithm that `auto` took
  TimeSummary time;
  std::string rank_scope{"max"};  ///< whose time it is: -a
  int warmup{0}, inner_calls{1};
  /// Of the busiest member. analytic: -1 for a plan from a file; plan: -1 for native.
  double bytes_analytic{0}, bytes_plan{-1}, bytes_observed{0};
  bool checked{false};
  std::int64_t num_wrong{0};
  std::string failure;  ///< the first wrong element
  double expected_us{-1}, fit_error_pct{-1};
  double alpha_us{-1}, bandwidth_GBps{-1};  ///< the fit's terms
  double copy_us{-1};  ///< all ranks copy size_bytes at once, sampled in turn with the row
  std::string verdict, verdict_reason;
  std::vector<Wait> waits, waits_unskewed;  ///< per rank; the latter with --skew-us
  double skew_us{0};
  double alone_us{-1};  ///< the first group while the others are idle, with --groups
  bool has_overlap{false};
  Overlap overlap;
  bool oversubscribed{false};

  /// Bytes per second of the larger buffer, and of a link (collective.hpp: busbw_factor).
  [[nodiscard]] double algbw_GBps() const;
  [[nodiscard]] double busbw_GBps() const;
  /// size_bytes over copy_us; 0 where nothing was copied.
  [[nodiscard]] double copy_GBps() const;
  /// busbw of copy_GBps.
  [[nodiscard]] double efficiency_pct() const;
  /// Time with all groups at once over the time of one alone.
  [[nodiscard]] double contention() const { return alone_us > 0 ? time.p50 / alone_us : 0; }
  /// The rank that waits longest; null when there are no stamps.
  [[nodiscard]] const Wait* longest_wait() const;
};

/// "all_reduce native float sum 1048576 B in place"
[[nodiscard]] std::string describe(const Point& point);

/// nccl-tests' names of element types: "float", "bfloat16".
[[nodiscard]] std::string_view nccl_name_of(DType dtype);

}  // namespace shardmark::bench::collectives
