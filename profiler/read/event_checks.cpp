#include "profiler/read/event_checks.hpp"

#include "profiler/sentences.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace shardmark {
namespace {

struct Overlaps {
  std::int64_t num{0}, longest_ns{0};
};
Overlaps overlaps_of(const Timeline& timeline) {
  Overlaps found;
  std::map<Queue, std::int64_t> end_of_stream;
  for (const DeviceEvent& event : timeline.events) {
    const std::optional<Queue> queue = queue_of(event);
    if (!queue) continue;
    const auto [stream, is_first] = end_of_stream.try_emplace(*queue, event.time.end_ns);
    if (is_first) continue;
    if (stream->second > event.time.start_ns) {
      ++found.num;
      found.longest_ns = std::max(found.longest_ns, stream->second - event.time.start_ns);
    }
    stream->second = std::max(stream->second, event.time.end_ns);
  }
  return found;
}

/// The event that ends last, if it is longer than at least two others together span and the last of
/// its stream, so that none after it could show whether its duration is right. Null: there is none.
const DeviceEvent* longer_than_all_others(const Timeline& timeline) {
  if (timeline.events.size() < 3 || timeline.format == "shardmark") return nullptr;
  const auto last = std::ranges::max_element(
      timeline.events, {}, [](const DeviceEvent& event) { return event.time.end_ns; });
  const std::optional<Queue> queue = queue_of(*last);
  const auto is_behind = [&](const DeviceEvent& event) { return queue_of(event) == queue; };
  if (queue && std::any_of(last + 1, timeline.events.end(), is_behind)) return nullptr;
  // Events are by start.
  const std::int64_t begin_ns =
      timeline.events[last == timeline.events.begin() ? 1 : 0].time.start_ns;
  std::int64_t end_ns = begin_ns;
  for (auto event = timeline.events.begin(); event != timeline.events.end(); ++event)
    if (event != last) end_ns = std::max({end_ns, event->time.start_ns, event->time.end_ns});
  return last->time.end_ns - last->time.start_ns > end_ns - begin_ns ? &*last : nullptr;
}

/// Nanoseconds among microseconds are 1000 times too long, counted from any zero that is not near.
bool has_two_units(const Timeline& timeline) {
  constexpr std::int64_t least_ns = 1'000'000'000'000, most_ratio = 100;
  const auto is_far = [](const DeviceEvent& event) { return event.time.start_ns >= least_ns; };
  const auto first = std::ranges::find_if(timeline.events, is_far);
  return first != timeline.events.end() &&
         timeline.events.back().time.start_ns / most_ratio > first->time.start_ns;
}

}  // namespace

std::vector<std::string> check_events(const Timeline& timeline) {
  std::int64_t num_zero = 0, num_negative = 0, num_before_launch = 0;
  for (const DeviceEvent& event : timeline.events) {
    if (event.time.end_ns == event.time.start_ns) ++num_zero;
    if (event.time.end_ns < event.time.start_ns) ++num_negative;
    if (event.launch_ns != no_time && event.launch_ns > event.time.start_ns) ++num_before_launch;
  }
  std::vector<std::string> found;
  const auto add = [&](std::int64_t num, const std::string& sentence) {
    if (num > 0) found.push_back(sentence);
  };
  add(num_zero, counted(num_zero, "event", "lasts no time", "last no time"));
  add(num_negative,
      counted(num_negative, "event", "ends before it starts; it is counted but takes no time",
              "end before they start; they are counted but take no time"));
  add(num_before_launch,
      counted(num_before_launch, "event", "starts before its launch", "start before their launch") +
          ": the clocks of host and device differ");
  const Overlaps overlaps = overlaps_of(timeline);
  add(overlaps.num, message(counted(overlaps.num, "event", "starts", "start"),
                            " before the one ahead of it in the same stream ends, by up to ",
                            microseconds(overlaps.longest_ns)));
  if (const DeviceEvent* const longest = longer_than_all_others(timeline))
    found.push_back(message(
        longest->name == no_index ? "work without a name" : start_of(timeline.names[longest->name]),
        " on stream ", longest->stream, " lasts ",
        microseconds(longest->time.end_ns - longest->time.start_ns),
        ", longer than all other work together spans; none follows on its stream that could show "
        "whether that is right"));
  if (has_two_units(timeline))
    found.emplace_back(
        "starts differ by more than a factor of 100: some times seem to be in another unit");
  return found;
}

}  // namespace shardmark
