#pragma once

#include "bench/analyze/collectives.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::bench {

/// One figure of two runs.
struct Change {
  std::int64_t a_ns{0}, b_ns{0};
  [[nodiscard]] std::int64_t delta_ns() const { return b_ns - a_ns; }
};

/// Where the windows went: span = compute + exposed communication + exposed copies + idle.
struct CategoryChange {
  int rank{-1};          ///< number in the world; -1: mean over the ranks of both runs
  std::string category;  ///< span, compute, exposed_comm, overlapped, exposed_copy or idle
  Change time;
};

/// All device work of one name, summed over the ranks of both runs.
struct KernelChange {
  std::string name;
  std::int64_t a_count{0}, b_count{0};
  Change total;
};

/// One collective, summed over the ranks of both runs.
struct CollectiveChange {
  std::string kind, group;
  std::int64_t bytes{-1};  ///< -1 if the file does not say
  std::int64_t a_count{0}, b_count{0};
  Change total;
  Change wait;  ///< of what could be matched across ranks, else 0
};

struct RunDiff {
  std::vector<CategoryChange> categories;     ///< means first, then by rank; each largest first
  std::vector<KernelChange> kernels;          ///< largest change first; what is equal is left out
  std::vector<CollectiveChange> collectives;  ///< the same
  /// One sentence: which rank the others wait for longer in B, and in which collective; or what
  /// else changed most; or that nothing did.
  std::string conclusion;
  std::vector<std::string> warnings;  ///< ranks of one run only, unequal numbers of steps, ...
};
/// What changed from `a` to `b`, each within its spans. Throws InputError if no rank is in both,
/// unless they have one each.
[[nodiscard]] RunDiff diff_runs(const Recording& a, const RankSpans& a_spans, const Recording& b,
                                const RankSpans& b_spans);

}  // namespace shardmark::bench
