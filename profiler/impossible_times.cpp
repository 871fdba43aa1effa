#include "profiler/impossible_times.hpp"

#include "profiler/sentences.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace shardmark {
namespace {

/// How many events at the start have no time.
std::ptrdiff_t num_without_time(const Timeline& timeline) {
  constexpr std::int64_t far_ns = 1'000'000'000;
  const std::vector<DeviceEvent>& events = timeline.events;
  const auto rest = std::ranges::find_if(
      events, [](const DeviceEvent& event) { return event.time.start_ns != 0; });
  return rest == events.end() || rest->time.start_ns < far_ns ? 0 : rest - events.begin();
}

/// Where an event has to end at the latest.
struct Cut {
  std::size_t event;
  std::int64_t end_ns;
};

/// By the starts of the later ones.
std::vector<Cut> impossible_ends(const Timeline& timeline) {
  const std::vector<DeviceEvent>& events = timeline.events;
  std::vector<Cut> cuts;
  // Of each queue those that may contain a later event; each ends no later than those behind it.
  std::map<Queue, std::vector<std::size_t>> open;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::optional<Queue> queue = queue_of(events[i]);
    if (!queue) continue;
    const Span& time = events[i].time;
    std::vector<std::size_t>& before = open[*queue];
    while (!before.empty() && events[before.back()].time.end_ns > time.end_ns) {
      cuts.push_back({before.back(), time.start_ns});
      before.pop_back();
    }
    if (!before.empty() && events[before.back()].time.end_ns <= time.start_ns) before.clear();
    before.push_back(i);
  }
  return cuts;
}

/// "2 events ...: `what`, by 3.000 us in all, most of it gemm on stream 7 (5.000 us, 3.000 us
/// left)".
std::string sentence_of(const Timeline& timeline, const std::vector<Cut>& cuts, const char* what) {
  const auto taken_ns = [&](const Cut& cut) {
    return timeline.events[cut.event].time.end_ns - cut.end_ns;
  };
  std::int64_t sum_ns = 0;
  for (const Cut& cut : cuts)
    sum_ns += std::min(taken_ns(cut), std::numeric_limits<std::int64_t>::max() - sum_ns);
  const Cut& most = *std::ranges::max_element(cuts, {}, taken_ns);
  const DeviceEvent& event = timeline.events[most.event];
  const std::string name =
      event.name == no_index ? "work without a name" : start_of(timeline.names.at(event.name));
  return message(counted(static_cast<std::int64_t>(cuts.size()), "event", "ends", "end"),
                 " after a later one of the same stream has ended, which cannot be: ", what,
                 " where that begins, by ", microseconds(sum_ns), " in all, most of it ", name,
                 " on stream ", event.stream, " (",
                 microseconds(event.time.end_ns - event.time.start_ns), ", ",
                 microseconds(most.end_ns - event.time.start_ns), " left)");
}

}  // namespace

std::vector<std::string> impossible_times(const Timeline& timeline) {
  std::vector<std::string> sentences;
  if (timeline.format == "shardmark") return sentences;
  if (const std::ptrdiff_t num = num_without_time(timeline); num > 0)
    sentences.push_back(counted(num, "event", "starts", "start") +
                        " at time 0, far from the others, as recorders do that had no time for "
                        "them: the span of the trace is not to be believed; --comm-rule auto "
                        "leaves them out");
  if (const std::vector<Cut> cuts = impossible_ends(timeline); !cuts.empty())
    sentences.push_back(sentence_of(
        timeline, cuts, "do not believe figures with them; --comm-rule auto cuts them"));
  return sentences;
}

void correct_impossible_times(Timeline& timeline) {
  if (timeline.format == "shardmark") return;
  if (const std::ptrdiff_t num = num_without_time(timeline); num > 0) {
    timeline.events.erase(timeline.events.begin(), timeline.events.begin() + num);
    timeline.warnings.push_back(
        counted(num, "event", "at time 0 is left out: its time could not be collected",
                "at time 0 are left out: their times could not be collected"));
  }
  const std::vector<Cut> cuts = impossible_ends(timeline);
  if (cuts.empty()) return;
  timeline.warnings.push_back(sentence_of(timeline, cuts, "cut"));
  for (const Cut& cut : cuts) timeline.events[cut.event].time.end_ns = cut.end_ns;
  std::ranges::stable_sort(timeline.events, {}, [](const DeviceEvent& event) {
    return std::pair{event.time.start_ns, event.time.end_ns};
  });
}

}  // namespace shardmark
