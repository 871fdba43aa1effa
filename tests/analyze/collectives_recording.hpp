#pragma once

#include "bench/analyze/across.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace shardmark::bench {

/// A rank's recording written down event by event; classes are as told, not by name.
class RankBuilder {
 public:
  explicit RankBuilder(int rank, std::string file = {}) {
    made_.timeline.rank = rank;
    made_.timeline.file = file.empty() ? "rank" + std::to_string(rank) + ".json" : std::move(file);
  }
  RankBuilder& compute(std::int64_t start_ns, std::int64_t end_ns,
                       const std::string& name = "gemm") {
    return add(name, start_ns, end_ns, WorkClass::compute);
  }
  RankBuilder& copy(std::int64_t start_ns, std::int64_t end_ns) {
    return add("Memcpy HtoD", start_ns, end_ns, WorkClass::memory);
  }
  /// A kernel that communicates without metadata.
  RankBuilder& nccl(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    return add(name, start_ns, end_ns, WorkClass::communication);
  }
  /// `elements` in and out, of type Float, in the group added last.
  RankBuilder& call(const std::string& kind, std::int64_t elements, std::int64_t start_ns,
                    std::int64_t end_ns, std::int64_t sequence = -1) {
    CommunicationCall& made = calls().emplace_back();
    made.kind = kind;
    made.dtype = "Float";
    made.group = group_;
    made.elements_in = made.elements_out = elements;
    made.sequence = sequence;
    add("ncclDevKernel_" + kind, start_ns, end_ns, WorkClass::communication);
    made_.timeline.events.back().call = static_cast<std::uint32_t>(calls().size() - 1);
    return *this;
  }
  RankBuilder& all_reduce(std::int64_t start_ns, std::int64_t end_ns, std::int64_t sequence = -1) {
    return call("allreduce", 256, start_ns, end_ns, sequence);
  }
  /// One kernel of the all-reduce with this number; those of one number share its metadata.
  RankBuilder& part(std::int64_t sequence, std::int64_t start_ns, std::int64_t end_ns) {
    all_reduce(start_ns, end_ns, sequence);
    const auto known = std::ranges::find(calls(), sequence, &CommunicationCall::sequence);
    made_.timeline.events.back().call = static_cast<std::uint32_t>(known - calls().begin());
    return *this;
  }
  /// "send" or "recv" with another rank.
  RankBuilder& message(const std::string& kind, int peer, std::int64_t start_ns,
                       std::int64_t end_ns) {
    call(kind, 256, start_ns, end_ns);
    calls().back().peer = peer;
    return *this;
  }
  /// The group of the calls from now on.
  RankBuilder& group(const std::string& name, std::vector<int> ranks, int size = 0,
                     const std::string& description = {}) {
    group_ = static_cast<std::uint32_t>(made_.timeline.groups.size());
    made_.timeline.groups.push_back({name, description, std::move(ranks), size});
    return *this;
  }
  RankBuilder& step(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    made_.timeline.steps.push_back({{start_ns, end_ns}, name_of(name)});
    return *this;
  }

  /// Events in order, as the readers give them.
  [[nodiscard]] RankRecording made() const {
    std::vector<std::pair<DeviceEvent, WorkClass>> both;
    for (std::size_t i = 0; i < made_.classes.size(); ++i)
      both.emplace_back(made_.timeline.events[i], made_.classes[i]);
    std::ranges::stable_sort(both, {}, [](const auto& event) {
      return std::pair{event.first.time.start_ns, event.first.time.end_ns};
    });
    RankRecording sorted = made_;
    for (std::size_t i = 0; i < both.size(); ++i)
      std::tie(sorted.timeline.events[i], sorted.classes[i]) = both[i];
    return sorted;
  }

 private:
  std::vector<CommunicationCall>& calls() { return made_.timeline.calls; }
  RankBuilder& add(const std::string& name, std::int64_t start_ns, std::int64_t end_ns,
                   WorkClass work) {
    DeviceEvent event;
    event.time = {start_ns, end_ns};
    event.name = name_of(name);
    if (work == WorkClass::memory) event.work = DeviceWork::copy;
    made_.timeline.events.push_back(event);
    made_.classes.push_back(work);
    return *this;
  }
  std::uint32_t name_of(const std::string& name) {
    auto& names = made_.timeline.names;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    return static_cast<std::uint32_t>(std::ranges::find(names, name) - names.begin());
  }

  RankRecording made_;
  std::uint32_t group_{no_index};
};

inline Recording recording_of(const std::vector<RankBuilder>& ranks, int world_size = 0) {
  Recording recording;
  for (const RankBuilder& rank : ranks) recording.ranks.push_back(rank.made());
  recording.world_size = world_size > 0 ? world_size : static_cast<int>(ranks.size());
  return recording;
}

inline const Window whole_trace{"trace", std::nullopt};

}  // namespace shardmark::bench
