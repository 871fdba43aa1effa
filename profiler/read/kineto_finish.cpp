#include "profiler/read/event_checks.hpp"
#include "profiler/read/kineto_builder.hpp"
#include "profiler/sentences.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace shardmark {
namespace {

bool is_named_as_library(const std::string& name) {
  return std::ranges::any_of(std::array{"ccl", "CCL"}, [&](const char* part) {
    return name.find(part) != std::string::npos;
  });
}
/// Kernels that pack tensors for a collective are launched within it too, but are PyTorch's.
bool is_of_pytorch(const std::string& name) {
  return name.find("at::native") != std::string::npos || name.starts_with("aten::");
}

auto by_time = [](const auto& event) { return std::tuple{event.time.start_ns, event.time.end_ns}; };

/// Gives a part of a timeline the names that it uses, numbered anew.
class NamesOfPart {
 public:
  explicit NamesOfPart(const std::vector<std::string>& all) : all_{all} {}
  void renumber(std::uint32_t& name, Timeline& part) {
    const auto [known, is_new] =
        number_of_.try_emplace(name, static_cast<std::uint32_t>(part.names.size()));
    if (is_new) part.names.push_back(all_[name]);
    name = known->second;
  }

 private:
  const std::vector<std::string>& all_;
  std::map<std::uint32_t, std::uint32_t> number_of_;
};

}  // namespace

std::vector<Timeline> KinetoBuilder::finish() {
  find_launches_and_calls();
  keep_last_of_each_step();
  timeline_.calls = calls_.calls();
  timeline_.groups = calls_.groups();
  std::vector<Timeline> timelines = split(own_ranks());
  if (timelines.empty()) {
    for (const HostEvent& step : steps_) timeline_.steps.push_back(step.range);
    for (const HostEvent& range : ranges_) timeline_.ranges.push_back(range.range);
    timelines.push_back(std::move(timeline_));
  }
  add_warnings(timelines.front());
  for (Timeline& timeline : timelines) {
    std::ranges::sort(timeline.events, {}, by_time);
    std::ranges::stable_sort(timeline.steps, {}, by_time);
    std::ranges::stable_sort(timeline.ranges, {}, by_time);
    timeline.device_name = device_name_of(timeline);
    for (std::string& warning : check_events(timeline))
      timeline.warnings.push_back(std::move(warning));
  }
  return timelines;
}

void KinetoBuilder::find_launches_and_calls() {
  std::ranges::stable_sort(launches_, {}, &Launch::correlation);
  calls_.sort();
  std::vector<LaunchedDuring> launched;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    DeviceEvent& event = timeline_.events[i];
    const Ids& ids = ids_[i];
    const auto launch =
        std::ranges::lower_bound(launches_, ids.correlation, {}, &Launch::correlation);
    const bool is_known = ids.correlation != no_id && launch != launches_.end() &&
                          launch->correlation == ids.correlation;
    if (is_known) {
      event.launch_ns = launch->start_ns;
      // Several of one call are a graph, which not every recorder says of them.
      if (launch->event == no_index)
        launch->event = static_cast<std::uint32_t>(i);
      else
        event.of_graph = timeline_.events[launch->event].of_graph = true;
    }
    if (event.call != no_index || event.work != DeviceWork::kernel ||
        is_of_pytorch(timeline_.names[event.name]))
      continue;
    // Until 2023 the External id was the correlation again.
    if (ids.external != no_id && ids.external != ids.correlation)
      event.call = calls_.find(ids.external);
    if (event.call != no_index || !is_known) continue;
    const KinetoCalls::HostCall* during = calls_.find_at(launch->thread, launch->start_ns);
    if (during != nullptr) launched.push_back({during, i});
  }
  launches_ = {};
  assign_calls(launched);
}

/// A kernel of the library belongs to the call during which it was launched. One of another name
/// does if it is the only one: some backends launch whatever is ready meanwhile.
void KinetoBuilder::assign_calls(const std::vector<LaunchedDuring>& launched) {
  std::unordered_map<const KinetoCalls::HostCall*, int> num_launched;
  for (const LaunchedDuring& kernel : launched) ++num_launched[kernel.call];
  for (const LaunchedDuring& kernel : launched) {
    DeviceEvent& event = timeline_.events[kernel.event];
    if (is_named_as_library(timeline_.names[event.name]) || num_launched[kernel.call] == 1)
      event.call = kernel.call->call;
  }
}

/// A step is known by its name; the file's last word on it counts.
void KinetoBuilder::keep_last_of_each_step() {
  std::set<std::pair<std::int32_t, std::uint32_t>> seen;
  std::vector<HostEvent> kept;
  for (std::size_t i = steps_.size(); i-- > 0;)
    if (seen.emplace(steps_[i].process, steps_[i].range.name).second) kept.push_back(steps_[i]);
  num_same_step_ = static_cast<std::int64_t>(steps_.size() - kept.size());
  std::ranges::reverse(kept);
  steps_ = std::move(kept);
}

/// Empty if the trace is not shardmark's: titles of rows on the processes of device events.
std::vector<std::int32_t> KinetoBuilder::own_ranks() const {
  std::set<std::int32_t> ranks{row_processes_.begin(), row_processes_.end()};
  const bool is_own =
      std::ranges::any_of(ids_, [&](const Ids& ids) { return ranks.contains(ids.process); });
  if (!is_own) return {};
  for (const Ids& ids : ids_) ranks.insert(ids.process);
  return {ranks.begin(), ranks.end()};
}

std::vector<Timeline> KinetoBuilder::split(const std::vector<std::int32_t>& ranks) const {
  std::vector<Timeline> parts(ranks.size());
  std::vector<NamesOfPart> names(ranks.size(), NamesOfPart{timeline_.names});
  std::map<std::int32_t, std::size_t> part_of;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    part_of.emplace(ranks[i], i);
    parts[i].format = "shardmark";
    parts[i].rank = ranks[i];
    parts[i].world_size = timeline_.world_size;
    parts[i].calls = timeline_.calls;
    parts[i].groups = timeline_.groups;
    parts[i].num_events_read = timeline_.num_events_read;
  }
  if (parts.empty()) return parts;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::size_t at = part_of.at(ids_[i].process);
    parts[at].events.push_back(timeline_.events[i]);
    names[at].renumber(parts[at].events.back().name, parts[at]);
  }
  const auto distribute = [&](const std::vector<HostEvent>& events,
                              std::vector<HostRange> Timeline::*list) {
    for (HostEvent event : events) {
      const auto part = part_of.find(event.process);
      if (part == part_of.end()) continue;
      Timeline& timeline = parts[part->second];
      names[part->second].renumber(event.range.name, timeline);
      (timeline.*list).push_back(event.range);
    }
  };
  distribute(steps_, &Timeline::steps);
  distribute(ranges_, &Timeline::ranges);
  return parts;
}

/// Of the device that did the work, if there are several. A trace of ours has one per rank.
std::string KinetoBuilder::device_name_of(const Timeline& timeline) const {
  const bool is_own = timeline.format == "shardmark";
  std::int64_t device = timeline.events.empty() ? 0 : timeline.events.front().device;
  if (is_own) device = timeline.rank;
  const auto named =
      std::ranges::find(device_names_, device, [](const auto& known) { return known.first; });
  if (named != device_names_.end()) return named->second;
  return is_own || device_names_.empty() ? std::string{} : device_names_.front().second;
}

/// What concerns the file and not its events.
void KinetoBuilder::add_warnings(Timeline& timeline) const {
  if (num_broken_ > 0)
    timeline.faults.push_back(message(counted(num_broken_, "event"),
                                      " without readable text or time left out, ",
                                      num_broken_ == 1 ? "at " : "the first at ", first_broken_));
  const auto add = [&](std::int64_t num, const std::string& sentence) {
    if (num > 0) timeline.warnings.push_back(sentence);
  };
  std::set<std::int32_t> devices;
  if (timeline.format.empty())
    for (const DeviceEvent& event : timeline.events) devices.insert(event.device);
  if (devices.size() > 1)
    timeline.warnings.push_back(message("the work of ", devices.size(),
                                        " devices is taken for that of one rank: compute "
                                        "of one of them hides communication of another"));
  add(num_repaired_names_,
      message(counted(num_repaired_names_, "name"),
              " with characters that JSON does not allow; they were replaced"));
  add(num_broken_args_, message(counted(num_broken_args_, "event"),
                                " with args that are not JSON to their end; what comes before "
                                "the fault counts"));
  add(num_below_ns_, message(counted(num_below_ns_, "event"),
                             " with times finer than a nanosecond; starts and ends were rounded "
                             "down"));
  add(num_same_step_, message(counted(num_same_step_, "step"),
                              " with the name of a later one in the file, which counts alone"));
}

}  // namespace shardmark
