#pragma once

#include "bench/analyze/across.hpp"
#include "bench/analyze/diff.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace shardmark::bench {

/// A part of the window; names as in CategoryChange.
struct Category {
  const char *name, *words;
  std::int64_t Account::*time;
};
inline constexpr std::array<Category, 6> all_categories{
    {{"span", "window", &Account::span_ns},
     {"compute", "compute", &Account::compute_ns},
     {"exposed_comm", "exposed communication", &Account::exposed_comm_ns},
     {"overlapped", "overlapped communication", &Account::overlapped_ns},
     {"exposed_copy", "exposed copies", &Account::exposed_copy_ns},
     {"idle", "idle time", &Account::idle_ns}}};

using CollectiveKey = std::tuple<std::string, std::string, std::int64_t>;  ///< kind, group, bytes

/// One of the two runs, with what is known of the ranks that both have.
struct ComparedRun {
  const Recording& recording;
  const RankSpans& spans;
  std::optional<AcrossRanks> across{};
  std::vector<std::size_t> positions{};   ///< of the common ranks
  std::vector<Account> accounts{};        ///< of the common ranks
  std::vector<std::int64_t> begins_ns{};  ///< of their work, after the first of them to begin
};

/// RunDiff::conclusion. `common`: numbers of the common ranks, at least one.
[[nodiscard]] std::string conclude(const ComparedRun& a, const ComparedRun& b,
                                   const std::vector<int>& common,
                                   const std::vector<CategoryChange>& categories);

}  // namespace shardmark::bench
