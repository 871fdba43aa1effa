#pragma once

#include "core/error.hpp"
#include "profiler/account.hpp"
#include "profiler/impossible_times.hpp"
#include "profiler/read/read.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

using Reader = std::vector<Timeline> (*)(const std::filesystem::path&);

/// Ends the process if `holds` is false, so that a fuzzer keeps the input.
inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "not so: " << what << '\n';
  std::abort();
}

/// What users of a timeline rely on.
inline void check_timeline(const Timeline& timeline) {
  const auto is_before = [](const auto& a, const auto& b) {
    return a.time.start_ns < b.time.start_ns;
  };
  demand(std::is_sorted(timeline.events.begin(), timeline.events.end(), is_before), "event order");
  demand(std::is_sorted(timeline.steps.begin(), timeline.steps.end(), is_before), "step order");
  for (const DeviceEvent& event : timeline.events) {
    demand(event.name < timeline.names.size(), "name of an event");
    demand(event.call == no_index || event.call < timeline.calls.size(), "call of an event");
  }
  for (const CommunicationCall& call : timeline.calls)
    demand(call.group == no_index || call.group < timeline.groups.size(), "group of a call");
  for (const std::vector<HostRange>* ranges : {&timeline.steps, &timeline.ranges})
    for (const HostRange& range : *ranges)
      demand(range.name < timeline.names.size(), "name of a range");
}

/// Reads `data` as a file and accounts for what is in it. Refusing it is fine; anything else that
/// ends the process is not.
inline void run_reader(Reader read, const void* data, std::size_t size) {
  const std::string path =
      (std::filesystem::temp_directory_path() / message("shardmark_fuzz_", getpid())).string();
  std::ofstream{path, std::ios::binary}.write(static_cast<const char*>(data),
                                              static_cast<std::streamsize>(size));
  std::vector<Timeline> timelines;
  try {
    timelines = read(path);
  } catch (const InputError&) {
    // As it should be.
  }
  std::filesystem::remove(path);
  for (Timeline& timeline : timelines) {
    check_timeline(timeline);
    correct_impossible_times(timeline);
    const std::vector<WorkClass> classes = classify(timeline, CommRule::automatic, {});
    for (const Window& window : windows_of(timeline)) {
      const auto result = account(timeline, classes, window);
      demand(!result || result->residual_ns == 0, "parts of a window sum up to it");
    }
  }
}

}  // namespace shardmark
