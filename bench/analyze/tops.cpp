#include "bench/analyze/tops.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace shardmark::bench {
namespace {

std::int64_t length_of(const Span& time) {
  return std::max<std::int64_t>(time.end_ns - time.start_ns, 0);
}

std::string name_of(const shardmark::Timeline& timeline, const DeviceEvent& event) {
  return event.name == no_index ? "(no name)" : timeline.names.at(event.name);
}

bool begins_in(const DeviceEvent& event, const Window& window) {
  return !window.span || (event.time.start_ns >= window.span->start_ns &&
                          event.time.start_ns < window.span->end_ns);
}

/// Time in which nothing runs.
std::vector<Span> idle_of(const shardmark::Timeline& timeline, const Window& window) {
  std::vector<Span> spans;
  for (const DeviceEvent& event : timeline.events)
    if (lies_in(event.time, window)) spans.push_back(cut_to(event.time, window));
  const std::vector<Span> busy = united(std::move(spans));
  if (window.span) return subtracted(std::array{*window.span}, busy);
  if (busy.empty()) return {};
  return subtracted(std::array{Span{busy.front().start_ns, busy.back().end_ns}}, busy);
}

/// The first event that occupies time from `time_ns` on; null: none.
const DeviceEvent* first_from(const shardmark::Timeline& timeline, std::int64_t time_ns) {
  const auto start_of = [](const DeviceEvent& event) { return event.time.start_ns; };
  const auto from = std::ranges::lower_bound(timeline.events, time_ns, {}, start_of);
  const auto found = std::find_if(from, timeline.events.end(), [](const DeviceEvent& event) {
    return event.time.end_ns > event.time.start_ns;
  });
  return found == timeline.events.end() ? nullptr : &*found;
}

/// The one that ended last up to `time_ns`; null: none.
const DeviceEvent* last_until(const shardmark::Timeline& timeline, std::int64_t time_ns) {
  const DeviceEvent* last = nullptr;
  for (const DeviceEvent& event : timeline.events) {
    if (event.time.start_ns >= time_ns) break;
    if (event.time.end_ns <= event.time.start_ns || event.time.end_ns > time_ns) continue;
    if (last == nullptr || event.time.end_ns >= last->time.end_ns) last = &event;
  }
  return last;
}

GapCause cause_of(const Span& gap, const DeviceEvent* after) {
  if (after == nullptr || after->launch_ns == no_time || after->launch_ns > after->time.start_ns)
    return GapCause::unknown;
  return after->launch_ns >= gap.start_ns ? GapCause::host_bound : GapCause::waiting;
}

}  // namespace

std::vector<KernelTotal> top_kernels(const RankRecording& rank, const Window& window,
                                     std::size_t limit) {
  std::map<std::tuple<std::uint32_t, WorkClass, bool>, KernelTotal> totals;
  std::int64_t sum_ns = 0;
  for (std::size_t i = 0; i < rank.timeline.events.size(); ++i) {
    const DeviceEvent& event = rank.timeline.events[i];
    if (!begins_in(event, window)) continue;
    const std::int64_t length_ns = length_of(event.time);
    KernelTotal& total = totals[{event.name, rank.classes[i], event.between_devices}];
    total.min_ns = total.count == 0 ? length_ns : std::min(total.min_ns, length_ns);
    total.max_ns = std::max(total.max_ns, length_ns);
    total.total_ns += length_ns;
    ++total.count;
    sum_ns += length_ns;
  }
  std::vector<KernelTotal> result;
  for (auto& [key, total] : totals) {
    const auto& [name, work, between_devices] = key;
    total.name = name == no_index ? "(no name)" : rank.timeline.names.at(name);
    total.work = work;
    total.between_devices = between_devices;
    total.mean_us = static_cast<double>(total.total_ns) / 1e3 / static_cast<double>(total.count);
    if (sum_ns > 0)
      total.share_pct = 100 * static_cast<double>(total.total_ns) / static_cast<double>(sum_ns);
    result.push_back(std::move(total));
  }
  std::ranges::stable_sort(result, std::greater{}, &KernelTotal::total_ns);
  if (result.size() > limit) result.resize(limit);
  return result;
}

std::string_view name_of(GapCause cause) {
  switch (cause) {
    case GapCause::host_bound:
      return "host-bound";
    case GapCause::waiting:
      return "waiting";
    case GapCause::unknown:
      return "unknown";
  }
  return "";
}

std::vector<Gap> longest_gaps(const RankRecording& rank, const Window& window, std::size_t limit) {
  const shardmark::Timeline& timeline = rank.timeline;
  std::vector<Span> idle = idle_of(timeline, window);
  std::ranges::stable_sort(idle, std::greater{}, length_of);
  if (idle.size() > limit) idle.resize(limit);
  std::vector<Gap> gaps;
  for (const Span& time : idle) {
    const DeviceEvent* const before = last_until(timeline, time.start_ns);
    const DeviceEvent* const after = first_from(timeline, time.end_ns);
    Gap gap{.time = time, .cause = cause_of(time, after)};
    if (before != nullptr) gap.before = name_of(timeline, *before);
    if (after != nullptr) gap.after = name_of(timeline, *after);
    if (gap.cause == GapCause::host_bound)
      gap.late_ns = std::min(after->launch_ns, time.end_ns) - time.start_ns;
    gaps.push_back(std::move(gap));
  }
  return gaps;
}

IdleSplit split_idle(const RankRecording& rank, const Window& window) {
  IdleSplit split;
  for (const Span& gap : idle_of(rank.timeline, window)) {
    switch (cause_of(gap, first_from(rank.timeline, gap.end_ns))) {
      case GapCause::host_bound:
        split.host_bound_ns += length_of(gap);
        break;
      case GapCause::waiting:
        split.waiting_ns += length_of(gap);
        break;
      case GapCause::unknown:
        split.unknown_ns += length_of(gap);
        break;
    }
  }
  return split;
}

PeerCopies peer_copies(const RankRecording& rank, const Window& window) {
  PeerCopies result;
  std::vector<Span> copies, compute;
  for (std::size_t i = 0; i < rank.timeline.events.size(); ++i) {
    const DeviceEvent& event = rank.timeline.events[i];
    if (!lies_in(event.time, window)) continue;
    if (event.between_devices) {
      copies.push_back(cut_to(event.time, window));
      ++result.count;
    } else if (rank.classes[i] == WorkClass::compute) {
      compute.push_back(cut_to(event.time, window));
    }
  }
  copies = united(std::move(copies));
  result.total_ns = length_ns(copies);
  result.exposed_ns = length_ns(subtracted(copies, united(std::move(compute))));
  return result;
}

std::vector<std::string> event_flags(const shardmark::Timeline& timeline) {
  std::int64_t count = 0, most_ns = 0;
  std::map<std::pair<std::int32_t, std::int32_t>, Span> latest;  // by device and stream
  for (const DeviceEvent& event : timeline.events) {
    if (length_of(event.time) == 0) continue;
    Span& before = latest[{event.device, event.stream}];
    if (const std::int64_t late_ns = before.end_ns - event.time.end_ns;
        length_of(before) > 0 && late_ns > 0) {
      ++count;
      most_ns = std::max(most_ns, late_ns);
    }
    before = event.time;
  }
  if (count == 0) return {};
  return {message(count, " events end after the next one of their stream has ended (by up to ",
                  static_cast<double>(most_ns) / 1e3,
                  " us), which cannot be: do not believe figures with them; --comm-rule auto cuts "
                  "them")};
}

}  // namespace shardmark::bench
