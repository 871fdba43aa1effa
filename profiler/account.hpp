#pragma once

#include "profiler/communication.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// A window of the accounting. Its span is not set for a whole trace, which lasts from the first
/// start to the last end of device work.
struct Window {
  std::string name;  ///< "trace", "step:ProfilerStep#552", "range:forward"
  std::optional<Span> span;
};
/// Whether any of `time` lies in it: it begins before the window ends and ends after it begins.
[[nodiscard]] bool lies_in(const Span& time, const Window& window);
/// The part of `time` in the window; empty or reversed where there is none.
[[nodiscard]] Span cut_to(const Span& time, const Window& window);

/// Where a window's time went on one rank, from unions of intervals cut to the window:
///   span = compute + exposed_comm + exposed_copy + idle, without a rest
///   overlapped = |COMM n COMPUTE|, exposed_comm = |COMM \ COMPUTE|,
///   exposed_copy = |COPY \ (COMPUTE u COMM)|, three_way = |COMPUTE n COMM n COPY|.
struct Account {
  Window window;
  Span span;                                                ///< what the window came out as
  std::int64_t num_kernels{0}, num_comm{0}, num_copies{0};  ///< that lie in it, also in part
  std::int64_t num_zero{0}, num_negative{0};  ///< events of the whole file without a length
  std::int64_t span_ns{0}, busy_ns{0}, idle_ns{0};
  std::int64_t compute_ns{0}, comm_ns{0}, copy_ns{0};
  std::int64_t exposed_comm_ns{0}, overlapped_ns{0}, exposed_copy_ns{0}, three_way_ns{0};
  /// Of the first line. Each part is measured on its own (idle as the gaps of all work together),
  /// so that this can be wrong.
  std::int64_t residual_ns{0};
};
/// Nothing where the window has no device work and no span of its own. `num_kernels` counts those
/// that communicate, too; `num_copies` copies and sets.
[[nodiscard]] std::optional<Account> account(const Timeline& timeline,
                                             std::span<const WorkClass> classes,
                                             const Window& window);

/// The whole trace and each step.
[[nodiscard]] std::vector<Window> windows_of(const Timeline& timeline);

/// Puts right what cannot have been, with a sentence in Timeline::warnings for each kind. To be
/// done before `classify` under CommRule::automatic; the other rules take files as they are, and
/// lanes of our own traces may hold several messages at once.
///   - An event that ends after the next one of its stream has ended, too: work of a stream runs in
///     order, so its duration is wrong; it is cut where the next begins. (A next one that begins a
///     little early and ends later is usual where launches are programmatic.)
///   - Events at time 0 when all others begin more than a second later: their times could not be
///     collected (CUPTI then gives 0); they are left out, else the trace would begin at 0.
void correct_impossible_times(Timeline& timeline);

}  // namespace shardmark
