#include "bench/analyze/tops.hpp"

#include "bench/analyze/collectives.hpp"

#include <algorithm>
#include <array>
#include <functional>
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

/// Time in which nothing runs.
std::vector<Span> idle_of(const shardmark::Timeline& timeline, const ChosenSpans& chosen) {
  if (timeline.events.empty()) return chosen.value_or(std::vector<Span>{});
  std::vector<Span> spans;
  Span extent = timeline.events.front().time;
  for (const DeviceEvent& event : timeline.events) {
    spans.push_back(event.time);
    extent.end_ns = std::max({extent.end_ns, event.time.start_ns, event.time.end_ns});
  }
  const std::vector<Span> busy = united(std::move(spans));
  return chosen ? subtracted(*chosen, busy) : subtracted(std::array{extent}, busy);
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

/// What ran last before an idle time.
class EndedLast {
 public:
  explicit EndedLast(const shardmark::Timeline& timeline) : timeline_{timeline} {
    const DeviceEvent* last = nullptr;
    for (const DeviceEvent& event : timeline.events) {
      const bool takes_time = event.time.end_ns > event.time.start_ns;
      if (takes_time && (last == nullptr || event.time.end_ns >= last->time.end_ns)) last = &event;
      up_to_.push_back(last);
    }
  }
  /// Null: nothing did. At `time_ns` nothing runs.
  [[nodiscard]] const DeviceEvent* before(std::int64_t time_ns) const {
    const auto start_of = [](const DeviceEvent& event) { return event.time.start_ns; };
    const auto next = std::ranges::lower_bound(timeline_.events, time_ns, {}, start_of);
    const auto place = static_cast<std::size_t>(next - timeline_.events.begin());
    return place == 0 ? nullptr : up_to_[place - 1];
  }

 private:
  const shardmark::Timeline& timeline_;
  std::vector<const DeviceEvent*> up_to_;  ///< of the events up to each the one that ends last
};

/// How long the host had not launched what comes after a gap; nothing if that is not known.
std::optional<std::int64_t> late_ns_of(const Span& gap, const DeviceEvent* after) {
  if (after == nullptr || after->launch_ns == no_time || after->launch_ns > after->time.start_ns)
    return std::nullopt;
  return std::clamp(after->launch_ns, gap.start_ns, gap.end_ns) - gap.start_ns;
}

}  // namespace

std::vector<KernelTotal> top_kernels(const RankRecording& rank, const ChosenSpans& chosen,
                                     std::size_t limit) {
  std::map<std::tuple<std::uint32_t, WorkClass, bool>, KernelTotal> totals;
  std::int64_t sum_ns = 0;
  for (std::size_t i = 0; i < rank.timeline.events.size(); ++i) {
    const DeviceEvent& event = rank.timeline.events[i];
    if (!lies_in(chosen, event.time)) continue;
    const std::int64_t length_ns = length_in(chosen, event.time);
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

std::vector<Gap> longest_gaps(const RankRecording& rank, const ChosenSpans& chosen,
                              std::size_t limit) {
  const shardmark::Timeline& timeline = rank.timeline;
  std::vector<Span> idle = idle_of(timeline, chosen);
  std::ranges::stable_sort(idle, std::greater{}, length_of);
  if (idle.size() > limit) idle.resize(limit);
  const EndedLast ended_last{timeline};
  std::vector<Gap> gaps;
  for (const Span& time : idle) {
    const DeviceEvent* const before = ended_last.before(time.start_ns);
    const DeviceEvent* const after = first_from(timeline, time.end_ns);
    Gap gap{.time = time};
    if (before != nullptr) gap.before = name_of(timeline, *before);
    if (after != nullptr) gap.after = name_of(timeline, *after);
    if (const auto late_ns = late_ns_of(time, after)) {
      gap.late_ns = *late_ns;
      gap.cause = 2 * *late_ns > length_of(time) ? GapCause::host_bound : GapCause::waiting;
    }
    gaps.push_back(std::move(gap));
  }
  return gaps;
}

IdleSplit split_idle(const RankRecording& rank, const ChosenSpans& chosen) {
  IdleSplit split;
  for (const Span& gap : idle_of(rank.timeline, chosen)) {
    const auto late_ns = late_ns_of(gap, first_from(rank.timeline, gap.end_ns));
    if (!late_ns) {
      split.unknown_ns += length_of(gap);
      continue;
    }
    split.host_bound_ns += *late_ns;
    split.waiting_ns += length_of(gap) - *late_ns;
  }
  return split;
}

PeerCopies peer_copies(const RankRecording& rank, const ChosenSpans& chosen) {
  PeerCopies result;
  std::vector<Span> copies;
  for (const DeviceEvent& event : rank.timeline.events) {
    if (!event.between_devices || !lies_in(chosen, event.time)) continue;
    copies.push_back(event.time);
    ++result.count;
  }
  if (copies.empty()) return result;
  copies = cut_to(chosen, united(std::move(copies)));
  result.total_ns = length_ns(copies);
  result.exposed_ns = length_ns(subtracted(copies, busy_spans(rank, WorkClass::compute)));
  return result;
}

}  // namespace shardmark::bench
