#pragma once

#include "bench/analyze/across.hpp"
#include "bench/analyze/collectives.hpp"
#include "bench/analyze/flops.hpp"
#include "bench/analyze/options.hpp"
#include "bench/analyze/stages.hpp"
#include "bench/analyze/time_text.hpp"
#include "bench/analyze/tops.hpp"
#include "bench/analyze/windows.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// What is known of one rank.
struct RankReport {
  int rank{0};
  std::string file, format, device_name;
  std::int64_t num_events_read{0};
  std::int64_t begin_ns{0};  ///< where the outputs' times begin, on this rank's clock
  /// Of the chosen window; nothing if the rank has no device work, or none of the chosen steps.
  std::optional<Account> total;
  std::vector<Account> steps;  ///< with device work or not; cut to the chosen window
  IdleSplit idle;
  PeerCopies peer_copies;
  std::vector<KernelTotal> kernels;  ///< largest total first
  std::vector<Gap> gaps;             ///< longest first, at most Options::top or 100
};

/// Compute times of the ranks with device work over the same steps, or over the window.
struct ComparedCompute {
  std::vector<double> compute_us;
  std::vector<int> numbers;   ///< of the ranks
  double window_us{1e-9};     ///< of the rank that it is longest on
  std::int64_t num_steps{0};  ///< that all of them have; 0: of the window
  /// Slowest over fastest; 0 of fewer than two ranks, or if one computes nothing.
  [[nodiscard]] double ratio() const;
};

/// All that the outputs print.
struct Report {
  Options options;
  std::string window;  ///< name of what was looked at
  int world_size{0};
  std::vector<int> missing_ranks;
  std::vector<RankReport> ranks;
  std::vector<CollectiveRow> collectives;  ///< of all ranks
  std::optional<AcrossRanks> across;       ///< nothing of a single rank
  ComparedCompute compared;
  Stages stages;  ///< empty without a pipeline
  std::optional<Mfu> mfu;
  std::vector<std::string> suspicious_kernels;  ///< look like communication, counted as compute
  std::vector<std::string> warnings, errors;    ///< a sentence each
  Verdict verdict;

  /// Place in `ranks` with the largest share of exposed communication; nothing without device work.
  [[nodiscard]] std::optional<std::size_t> most_exposed() const;
  /// A collective was matched on all of its members: waits are known.
  [[nodiscard]] bool has_complete_collectives() const;
  /// Of the tables for readers.
  [[nodiscard]] TimeUnit time_unit() const;
};

/// Analyses what the options choose. Throws InputError where they choose nothing.
[[nodiscard]] Report make_report(const Recording& recording, const Options& options);

/// Part of `whole` in percent; 0 of nothing.
[[nodiscard]] double percent_of(std::int64_t part_ns, std::int64_t whole_ns);

}  // namespace shardmark::bench::analyze
