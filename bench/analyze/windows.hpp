#pragma once

#include "bench/analyze/options.hpp"
#include "bench/analyze/recording.hpp"

#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// What is looked at of one rank: disjoint spans by time, on its own clock. Without a value, all of
/// it: from the first start to the last end of its device work.
struct RankWindow {
  std::string name;
  std::optional<std::vector<Span>> spans;
};

/// What the options choose of every rank, as Recording::ranks.
struct ChosenWindows {
  std::string name;                            ///< "trace", "steps:552-554", "range:forward", ...
  std::vector<RankWindow> all;                 ///< `name` on each rank
  std::vector<std::vector<RankWindow>> steps;  ///< each rank's steps, cut to it
};
/// `offset_ns`, per rank, is added to its times to get those of the first rank's clock. Throws
/// InputError for steps, ranges and windows that no rank has, naming those that there are.
[[nodiscard]] ChosenWindows choose_windows(const Recording& recording, const Options& options,
                                           const std::vector<std::int64_t>& offset_ns);

/// Sums over the window's spans; an event that lies in several is counted once. Nothing where the
/// rank has no device work to take its span from, or none of the window's spans.
[[nodiscard]] std::optional<Account> account_in(const RankRecording& rank,
                                                const RankWindow& window);

/// True if the event lies in the window, also in part.
[[nodiscard]] bool lies_in(const DeviceEvent& event, const RankWindow& window);
/// The recording with only those device events.
[[nodiscard]] Recording cut_to(const Recording& recording, const std::vector<RankWindow>& windows);

/// 552 of "ProfilerStep#552"; nothing if there is no number.
[[nodiscard]] std::optional<std::int64_t> step_number(std::string_view name);

}  // namespace shardmark::bench::analyze
