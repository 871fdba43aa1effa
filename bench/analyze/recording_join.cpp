#include "bench/analyze/recording_parts.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <regex>
#include <utility>

namespace shardmark::bench {
namespace {

using Recorded = shardmark::Timeline;

bool is_trace_of_run(const Recorded& timeline) {
  static const std::regex name{R"(trace(-\d+)?\.json(\.gz)?)"};
  return timeline.format == "shardmark" &&
         std::regex_match(std::filesystem::path{timeline.file}.filename().string(), name);
}

void shift(Recorded& timeline, std::int64_t by_ns) {
  const auto shift_span = [&](Span& span) {
    span.start_ns += by_ns;
    span.end_ns += by_ns;
  };
  for (DeviceEvent& event : timeline.events) {
    shift_span(event.time);
    if (event.launch_ns != no_time) event.launch_ns += by_ns;
  }
  for (auto* ranges : {&timeline.steps, &timeline.ranges})
    for (HostRange& range : *ranges) shift_span(range.time);
}

/// Of numbers that are believed.
constexpr std::int64_t max_step = 1 << 30;
constexpr std::string_view step_prefix = "ProfilerStep#";

/// N of ProfilerStep#N; -1 for other names.
std::int64_t step_number(std::string_view name) {
  std::int64_t number = -1;
  if (name.starts_with(step_prefix))
    std::from_chars(name.data() + step_prefix.size(), name.data() + name.size(), number);
  return number;
}

/// Steps of a trace go on counting where those of the one before it end.
void renumber_steps(Recorded& timeline, std::int64_t first) {
  for (std::string& name : timeline.names)
    if (const std::int64_t number = step_number(name); number >= 0 && number < max_step)
      name = message(step_prefix, first + number);
}

std::int64_t end_of(const Recorded& timeline) {
  std::int64_t end_ns = 0;
  for (const DeviceEvent& event : timeline.events) end_ns = std::max(end_ns, event.time.end_ns);
  for (const HostRange& step : timeline.steps) end_ns = std::max(end_ns, step.time.end_ns);
  return end_ns;
}

/// Puts the items of `from` behind those of `to`, without those that are there by `key`; their
/// new places.
template <class Item, class Key>
std::vector<std::uint32_t> merge(std::vector<Item>& to, std::vector<Item>& from, const Key& key) {
  std::map<std::string, std::uint32_t> places;
  for (std::size_t i = 0; i < to.size(); ++i)
    places.emplace(key(to[i]), static_cast<std::uint32_t>(i));
  std::vector<std::uint32_t> moved;
  for (Item& item : from) {
    const auto [place, is_new] =
        places.try_emplace(key(item), static_cast<std::uint32_t>(to.size()));
    if (is_new) to.push_back(std::move(item));
    moved.push_back(place->second);
  }
  return moved;
}

void append(Recorded& to, Recorded from) {
  const auto names = merge(to.names, from.names, [](const std::string& name) { return name; });
  const auto groups =
      merge(to.groups, from.groups, [](const ProcessGroup& group) { return group.name; });
  const auto first_call = static_cast<std::uint32_t>(to.calls.size());
  for (CommunicationCall& call : from.calls) {
    if (call.group != no_index) call.group = groups[call.group];
    to.calls.push_back(std::move(call));
  }
  for (DeviceEvent event : from.events) {
    if (event.name != no_index) event.name = names[event.name];
    if (event.call != no_index) event.call += first_call;
    to.events.push_back(event);
  }
  for (const auto& [target, source] :
       {std::pair{&to.steps, &from.steps}, std::pair{&to.ranges, &from.ranges}})
    for (HostRange range : *source) {
      if (range.name != no_index) range.name = names[range.name];
      target->push_back(range);
    }
  to.num_events_read += from.num_events_read;
  to.warnings.insert(to.warnings.end(), from.warnings.begin(), from.warnings.end());
  if (to.cut.empty()) to.cut = from.cut;
  to.faults.insert(to.faults.end(), from.faults.begin(), from.faults.end());
}

}  // namespace

void join_resumed(std::vector<Recorded>& timelines) {
  struct Run {
    std::string file;  ///< that is being read
    std::int64_t shift_ns{0}, end_ns{0};
    std::int64_t first_step{0}, next_step{0};
    std::map<int, std::size_t> places;  ///< of its ranks
  };
  constexpr std::int64_t gap_ns = 1'000'000;                ///< as between the rows of a trace
  constexpr std::int64_t most_ns = std::int64_t{1} << 60U;  ///< sums stay within 64 bits
  std::map<std::filesystem::path, Run> runs;
  std::vector<Recorded> joined;
  for (Recorded& timeline : timelines) {
    if (!is_trace_of_run(timeline)) {
      joined.push_back(std::move(timeline));
      continue;
    }
    Run& run = runs[std::filesystem::path{timeline.file}.parent_path()];
    if (std::exchange(run.file, timeline.file) != timeline.file && run.end_ns > 0 &&
        run.end_ns < most_ns) {
      run.shift_ns = run.end_ns + gap_ns;
      run.first_step = run.next_step;
    }
    shift(timeline, run.shift_ns);
    renumber_steps(timeline, run.first_step);
    run.end_ns = std::max(run.end_ns, end_of(timeline));
    for (const std::string& name : timeline.names)
      run.next_step = std::max(run.next_step, std::min(step_number(name), max_step) + 1);
    const auto [place, is_new] = run.places.try_emplace(timeline.rank, joined.size());
    if (is_new)
      joined.push_back(std::move(timeline));
    else
      append(joined[place->second], std::move(timeline));
  }
  timelines = std::move(joined);
}

}  // namespace shardmark::bench
