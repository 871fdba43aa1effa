#include "profiler/account.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace shardmark {
namespace {

/// Device work that lies in a window, cut to it, by class.
struct Parts {
  std::array<std::vector<Span>, 3> by_class;
  std::array<std::int64_t, 3> count{};

  void add(WorkClass work, const Span& time) {
    of(work).push_back(time);
    ++count[static_cast<std::size_t>(work)];
  }
  std::vector<Span>& of(WorkClass work) { return by_class[static_cast<std::size_t>(work)]; }
  [[nodiscard]] std::int64_t num(WorkClass work) const {
    return count[static_cast<std::size_t>(work)];
  }
};

/// From the first start to the last end; an end before its start does not count.
Span extent_of(const std::vector<Span>& spans) {
  Span extent{spans.front().start_ns, spans.front().end_ns};
  for (const Span& span : spans) {
    extent.start_ns = std::min(extent.start_ns, span.start_ns);
    extent.end_ns = std::max({extent.end_ns, span.start_ns, span.end_ns});
  }
  return extent;
}

std::vector<Span> joined(const std::vector<Span>& a, const std::vector<Span>& b) {
  std::vector<Span> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

}  // namespace

bool lies_in(const Span& time, const Window& window) {
  return !window.span ||
         (time.end_ns > window.span->start_ns && time.start_ns < window.span->end_ns);
}

Span cut_to(const Span& time, const Window& window) {
  if (!window.span) return time;
  return {std::max(time.start_ns, window.span->start_ns),
          std::min(time.end_ns, window.span->end_ns)};
}

Accounting::Accounting(const Timeline& timeline, std::span<const WorkClass> classes)
    : timeline_{timeline}, classes_{classes} {
  SHARDMARK_CHECK(classes.size() == timeline.events.size(), "a class for each event");
  latest_end_ns_.reserve(timeline.events.size());
  for (const DeviceEvent& event : timeline.events) {
    const Span& time = event.time;
    latest_end_ns_.push_back(latest_end_ns_.empty() ? time.end_ns
                                                    : std::max(latest_end_ns_.back(), time.end_ns));
    if (time.end_ns == time.start_ns) ++num_zero_;
    if (time.end_ns < time.start_ns) ++num_negative_;
  }
}

std::size_t Accounting::first_after(std::int64_t time_ns) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(latest_end_ns_, time_ns) -
                                  latest_end_ns_.begin());
}

std::optional<Account> Accounting::of(const Window& window) const {
  Parts parts;
  for (std::size_t i = window.span ? first_after(window.span->start_ns) : 0; i < classes_.size();
       ++i) {
    const Span& time = timeline_.events[i].time;
    if (window.span && time.start_ns >= window.span->end_ns) break;  // events are by start
    if (lies_in(time, window)) parts.add(classes_[i], cut_to(time, window));
  }
  std::vector<Span>& compute_spans = parts.of(WorkClass::compute);
  std::vector<Span>& comm_spans = parts.of(WorkClass::communication);
  std::vector<Span>& copy_spans = parts.of(WorkClass::memory);
  std::vector<Span> all = joined(joined(compute_spans, comm_spans), copy_spans);
  if (all.empty() && !window.span) return std::nullopt;

  Account result;
  result.window = window;
  result.span = window.span ? *window.span : extent_of(all);
  result.num_comm = parts.num(WorkClass::communication);
  result.num_kernels = parts.num(WorkClass::compute) + result.num_comm;
  result.num_copies = parts.num(WorkClass::memory);
  result.num_zero = num_zero_;
  result.num_negative = num_negative_;

  const std::vector<Span> kernels = united(joined(compute_spans, comm_spans));
  const std::vector<Span> busy = united(std::move(all));
  const std::vector<Span> compute = united(std::move(compute_spans));
  const std::vector<Span> comm = united(std::move(comm_spans));
  const std::vector<Span> copies = united(std::move(copy_spans));
  const std::vector<Span> overlapped = intersected(comm, compute);
  result.span_ns = result.span.end_ns - result.span.start_ns;
  result.busy_ns = length_ns(busy);
  result.idle_ns = length_ns(subtracted(std::array{result.span}, busy));
  result.compute_ns = length_ns(compute);
  result.comm_ns = length_ns(comm);
  result.copy_ns = length_ns(copies);
  result.overlapped_ns = length_ns(overlapped);
  result.exposed_comm_ns = length_ns(subtracted(comm, compute));
  result.exposed_copy_ns = length_ns(subtracted(copies, kernels));
  result.three_way_ns = length_ns(intersected(overlapped, copies));
  result.residual_ns = result.span_ns - result.compute_ns - result.exposed_comm_ns -
                       result.exposed_copy_ns - result.idle_ns;
  return result;
}

std::optional<Account> account(const Timeline& timeline, std::span<const WorkClass> classes,
                               const Window& window) {
  return Accounting{timeline, classes}.of(window);
}

std::vector<Window> windows_of(const Timeline& timeline) {
  std::vector<Window> windows{{"trace", std::nullopt}};
  for (const HostRange& step : timeline.steps)
    windows.push_back({"step:" + timeline.names.at(step.name), step.time});
  return windows;
}

}  // namespace shardmark
