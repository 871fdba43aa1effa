#pragma once

#include "bench/analyze/recording.hpp"
#include "bench/analyze/spans.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

/// All device work of one name on one rank: of each event what lies in the spans, waiting included.
struct KernelTotal {
  std::string name;
  WorkClass work{WorkClass::compute};
  bool between_devices{false};  ///< copies between devices stand apart from those of equal name
  std::int64_t count{0}, total_ns{0}, min_ns{0}, max_ns{0};
  double mean_us{0};
  double share_pct{0};  ///< of the sum of all durations in the spans; 0 of 0 is 0
};
/// Those with the largest totals, largest first, at most `limit`. Negative durations count as 0.
[[nodiscard]] std::vector<KernelTotal> top_kernels(const RankRecording& rank,
                                                   const ChosenSpans& chosen, std::size_t limit);

/// Why a device was idle before an event.
enum class GapCause : std::uint8_t {
  host_bound,  ///< for most of the time the host had not launched it
  waiting,     ///< it was launched: it waited for an event, a stream, or its own latency
  unknown,     ///< the launch is not in the file, or later than the kernel
};
[[nodiscard]] std::string_view name_of(GapCause cause);

/// An interval in which nothing runs on the device.
struct Gap {
  Span time;
  std::string before{}, after{};  ///< kernels; empty at the ends of the trace
  GapCause cause{GapCause::unknown};
  std::int64_t late_ns{0};  ///< from the gap's begin to the launch; 0: before it, or not known
};
/// The longest, longest first, at most `limit`.
[[nodiscard]] std::vector<Gap> longest_gaps(const RankRecording& rank, const ChosenSpans& chosen,
                                            std::size_t limit);

/// Idle time in the spans by what it waited for; of a gap up to the launch of what comes next for
/// the host. Their sum is Account::idle_ns.
struct IdleSplit {
  std::int64_t host_bound_ns{0}, waiting_ns{0}, unknown_ns{0};
};
[[nodiscard]] IdleSplit split_idle(const RankRecording& rank, const ChosenSpans& chosen);

/// Copies from one device to another, which the accounting has under copies: they may be
/// communication that no kernel does.
struct PeerCopies {
  std::int64_t count{0}, total_ns{0};  ///< of the union, in the spans
  std::int64_t exposed_ns{0};          ///< of it, not under compute
};
[[nodiscard]] PeerCopies peer_copies(const RankRecording& rank, const ChosenSpans& chosen);

}  // namespace shardmark::bench
