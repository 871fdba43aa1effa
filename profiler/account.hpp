#pragma once

#include "profiler/communication.hpp"

#include <cstddef>
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
/// Accounts of many windows of one timeline: each takes as long as the window has events, not as
/// the timeline has. Timeline and classes have to outlive it.
class Accounting {
 public:
  Accounting(const Timeline& timeline, std::span<const WorkClass> classes);
  /// Nothing where the window has no device work and no span of its own. `num_kernels` counts those
  /// that communicate, too; `num_copies` copies and sets.
  [[nodiscard]] std::optional<Account> of(const Window& window) const;
  /// Place in Timeline::events before which none ends after `time_ns`.
  [[nodiscard]] std::size_t first_after(std::int64_t time_ns) const;

 private:
  const Timeline& timeline_;
  std::span<const WorkClass> classes_;
  std::vector<std::int64_t> latest_end_ns_;  ///< of the events up to each
  std::int64_t num_zero_{0}, num_negative_{0};
};
/// Of one window.
[[nodiscard]] std::optional<Account> account(const Timeline& timeline,
                                             std::span<const WorkClass> classes,
                                             const Window& window);

/// The whole trace and each step.
[[nodiscard]] std::vector<Window> windows_of(const Timeline& timeline);

}  // namespace shardmark
