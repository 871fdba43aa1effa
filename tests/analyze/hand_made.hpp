#pragma once

#include "profiler/communication.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace shardmark {

/// A timeline written down event by event.
class HandMade {
 public:
  HandMade& kernel(const std::string& name, std::int64_t start_ns, std::int64_t end_ns,
                   int stream = 7, std::int64_t launch_ns = no_time) {
    return add(DeviceWork::kernel, name, {start_ns, end_ns}, stream, launch_ns);
  }
  HandMade& copy(std::int64_t start_ns, std::int64_t end_ns, int stream = 8) {
    return add(DeviceWork::copy, "Memcpy HtoD (Pinned -> Device)", {start_ns, end_ns}, stream,
               no_time);
  }
  HandMade& peer_copy(std::int64_t start_ns, std::int64_t end_ns, int stream = 8) {
    add(DeviceWork::copy, "Memcpy PtoP (Device -> Device)", {start_ns, end_ns}, stream, no_time);
    timeline_.events.back().between_devices = true;
    return *this;
  }
  /// The last event runs in this context.
  HandMade& context(std::uint32_t number) {
    timeline_.events.back().context = number;
    return *this;
  }
  /// The last event is a node of a CUDA graph.
  HandMade& of_graph() {
    timeline_.events.back().of_graph = true;
    return *this;
  }
  HandMade& step(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    timeline_.steps.push_back({{start_ns, end_ns}, name_of(name)});
    return *this;
  }
  /// The last event carries metadata of this collective.
  HandMade& call(const std::string& kind) {
    timeline_.events.back().call = static_cast<std::uint32_t>(timeline_.calls.size());
    timeline_.calls.emplace_back().kind = kind;
    return *this;
  }

  /// Events in order, as the readers give them.
  [[nodiscard]] Timeline made() const {
    Timeline timeline = timeline_;
    std::ranges::stable_sort(timeline.events, {}, [](const DeviceEvent& event) {
      return std::pair{event.time.start_ns, event.time.end_ns};
    });
    return timeline;
  }

 private:
  HandMade& add(DeviceWork work, const std::string& name, Span time, int stream,
                std::int64_t launch_ns) {
    DeviceEvent& event = timeline_.events.emplace_back();
    event.time = time;
    event.work = work;
    event.name = name_of(name);
    event.stream = stream;
    event.launch_ns = launch_ns;
    return *this;
  }
  std::uint32_t name_of(const std::string& name) {
    auto& names = timeline_.names;
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) names.push_back(name);
    return static_cast<std::uint32_t>(std::ranges::find(names, name) - names.begin());
  }

  Timeline timeline_;
};

}  // namespace shardmark
