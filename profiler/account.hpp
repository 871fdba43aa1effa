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
  std::int64_t residual_ns{
      0};  ///< of the first line; from sums made apart, so that it can be wrong
};
/// Nothing where the window has no device work and no span of its own.
[[nodiscard]] std::optional<Account> account(const Timeline& timeline,
                                             std::span<const WorkClass> classes,
                                             const Window& window);

/// The whole trace and each step.
[[nodiscard]] std::vector<Window> windows_of(const Timeline& timeline);

}  // namespace shardmark
