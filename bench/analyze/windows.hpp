#pragma once

#include "bench/analyze/across.hpp"
#include "bench/analyze/options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// What is looked at of one rank. Without spans from the first start to the last end of its device
/// work.
struct RankWindow {
  std::string name;
  ChosenSpans spans;
  bool is_whole{true};  ///< of a step: --window cuts nothing off
};

/// What the options choose of every rank, as Recording::ranks.
struct ChosenWindows {
  std::string name;                            ///< "trace", "steps:552-554", "range:forward", ...
  std::vector<RankWindow> all;                 ///< `name` on each rank
  std::vector<std::vector<RankWindow>> steps;  ///< each rank's steps, cut to it
  std::vector<std::string> warnings{};         ///< --window goes on after the last device work

  /// `all` without the name.
  [[nodiscard]] RankSpans spans() const;
};
/// Throws InputError for steps, ranges and windows that no rank has, naming those that there are.
/// --window is the same time on every rank: clocks are aligned for it.
[[nodiscard]] ChosenWindows choose_windows(const Recording& recording, const Options& options);

/// Clocks that are taken as they are.
[[nodiscard]] ClockAlignment own_clocks(const Recording& recording);
/// First start of device work on any rank, on the first rank's clock; 0 if there is none.
[[nodiscard]] std::int64_t begin_of(const Recording& recording,
                                    const std::vector<std::int64_t>& offset_ns);

/// Sums over the window's spans; an event that lies in several is counted once. Nothing where the
/// rank has no device work to take its span from, or none of the window's spans. `accounting`: of
/// the rank.
[[nodiscard]] std::optional<Account> account_in(const Accounting& accounting,
                                                const RankRecording& rank,
                                                const RankWindow& window);

/// 552 of "ProfilerStep#552"; nothing if there is no number.
[[nodiscard]] std::optional<std::int64_t> step_number(std::string_view name);

}  // namespace shardmark::bench::analyze
