#include "profiler/read/event_checks.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace shardmark {
namespace {

/// "1 event ends", "2 events end".
std::string events(std::int64_t num, const char* one, const char* several) {
  return message(num, num == 1 ? " event " : " events ", num == 1 ? one : several);
}

/// Nanoseconds as microseconds with three decimals.
std::string microseconds(std::int64_t ns) {
  std::string decimals = std::to_string(ns % 1000);
  decimals.insert(0, 3 - decimals.size(), '0');
  return message(ns / 1000, '.', decimals, " us");
}

struct Overlaps {
  std::int64_t num{0}, longest_ns{0};
};
Overlaps overlaps_of(const Timeline& timeline) {
  Overlaps found;
  std::map<std::pair<int, int>, std::int64_t> end_of_stream;
  for (const DeviceEvent& event : timeline.events) {
    if (event.time.end_ns <= event.time.start_ns) continue;
    const auto [stream, is_first] =
        end_of_stream.try_emplace({event.device, event.stream}, event.time.end_ns);
    if (is_first) continue;
    if (stream->second > event.time.start_ns) {
      ++found.num;
      found.longest_ns = std::max(found.longest_ns, stream->second - event.time.start_ns);
    }
    stream->second = std::max(stream->second, event.time.end_ns);
  }
  return found;
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
  std::int64_t num_zero = 0, num_negative = 0, num_before_launch = 0, num_at_zero = 0;
  for (const DeviceEvent& event : timeline.events) {
    if (event.time.end_ns == event.time.start_ns) ++num_zero;
    if (event.time.end_ns < event.time.start_ns) ++num_negative;
    if (event.launch_ns != no_time && event.launch_ns > event.time.start_ns) ++num_before_launch;
    if (event.time.start_ns == 0) ++num_at_zero;
  }
  std::vector<std::string> found;
  const auto add = [&](std::int64_t num, const std::string& sentence) {
    if (num > 0) found.push_back(sentence);
  };
  add(num_zero, events(num_zero, "lasts no time", "last no time"));
  add(num_negative, events(num_negative, "ends before it starts; it is counted but takes no time",
                           "end before they start; they are counted but take no time"));
  add(num_before_launch,
      events(num_before_launch, "starts before its launch", "start before their launch") +
          ": the clocks of host and device differ");
  constexpr std::int64_t far_ns = 1'000'000'000;
  const auto next = std::ranges::find_if(
      timeline.events, [](const DeviceEvent& event) { return event.time.start_ns > 0; });
  if (next != timeline.events.end() && next->time.start_ns > far_ns)
    add(num_at_zero, events(num_at_zero, "starts", "start") +
                         " at time 0, far from the others: the recorder had no time for them, and "
                         "the span of the trace is not to be believed");
  const Overlaps overlaps = overlaps_of(timeline);
  add(overlaps.num, message(events(overlaps.num, "starts", "start"),
                            " before the one ahead of it in the same stream ends, by up to ",
                            microseconds(overlaps.longest_ns)));
  if (has_two_units(timeline))
    found.emplace_back(
        "starts differ by more than a factor of 100: some times seem to be in another unit");
  return found;
}

}  // namespace shardmark
