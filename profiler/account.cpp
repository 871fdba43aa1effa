#include "profiler/account.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace shardmark {
namespace {

/// Device work that lies in a window, cut to it, by class.
struct Parts {
  std::array<std::vector<Span>, 3> by_class;
  std::array<std::int64_t, 3> count{};

  std::vector<Span>& of(WorkClass work) { return by_class[static_cast<std::size_t>(work)]; }
  [[nodiscard]] std::int64_t num(WorkClass work) const {
    return count[static_cast<std::size_t>(work)];
  }
};

Parts parts_in(const Timeline& timeline, std::span<const WorkClass> classes, const Window& window) {
  Parts parts;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const Span& time = timeline.events[i].time;
    if (window.span && time.start_ns >= window.span->end_ns) break;  // events are by start
    if (!lies_in(time, window)) continue;
    parts.of(classes[i]).push_back(cut_to(time, window));
    ++parts.count[static_cast<std::size_t>(classes[i])];
  }
  return parts;
}

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

/// Those at 0 when all others begin more than a second later.
void drop_events_without_time(Timeline& timeline) {
  constexpr std::int64_t far_ns = 1'000'000'000;
  std::vector<DeviceEvent>& events = timeline.events;
  const auto rest = std::ranges::find_if(
      events, [](const DeviceEvent& event) { return event.time.start_ns != 0; });
  const auto num = rest - events.begin();
  if (num == 0 || rest == events.end() || rest->time.start_ns < far_ns) return;
  events.erase(events.begin(), rest);
  timeline.warnings.push_back(
      message(num, " events at time 0 are left out: their times could not be collected"));
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

std::optional<Account> account(const Timeline& timeline, std::span<const WorkClass> classes,
                               const Window& window) {
  SHARDMARK_CHECK(classes.size() == timeline.events.size(), "a class for each event");
  Parts parts = parts_in(timeline, classes, window);
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
  for (const DeviceEvent& event : timeline.events) {
    if (event.time.end_ns == event.time.start_ns) ++result.num_zero;
    if (event.time.end_ns < event.time.start_ns) ++result.num_negative;
  }

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

std::vector<Window> windows_of(const Timeline& timeline) {
  std::vector<Window> windows{{"trace", std::nullopt}};
  for (const HostRange& step : timeline.steps)
    windows.push_back({"step:" + timeline.names.at(step.name), step.time});
  return windows;
}

void correct_impossible_times(Timeline& timeline) {
  if (timeline.format == "shardmark") return;
  drop_events_without_time(timeline);
  std::int64_t num_cut = 0, longest_ns = 0;
  std::map<std::pair<std::int32_t, std::int32_t>, DeviceEvent*> latest;  // by device and stream
  for (DeviceEvent& event : timeline.events) {
    if (event.time.end_ns <= event.time.start_ns) continue;
    DeviceEvent*& before = latest[{event.device, event.stream}];
    if (before != nullptr && before->time.end_ns > event.time.end_ns) {
      longest_ns = std::max(longest_ns, before->time.end_ns - before->time.start_ns);
      before->time.end_ns = event.time.start_ns;
      ++num_cut;
    }
    before = &event;
  }
  if (num_cut == 0) return;
  std::ranges::stable_sort(timeline.events, {}, [](const DeviceEvent& event) {
    return std::pair{event.time.start_ns, event.time.end_ns};
  });
  timeline.warnings.push_back(message(
      num_cut, " events end after the next one of their stream has ended (the longest says ",
      longest_ns, " ns): impossible, they are cut where that begins"));
}

}  // namespace shardmark
