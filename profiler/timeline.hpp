#pragma once

#include "profiler/analyse.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace shardmark {

/// What occupies a device. Nothing else in a recording does: not the wait for a stream or event,
/// not an annotation, not a host operation that carries a stream number.
enum class DeviceWork : std::uint8_t { kernel, copy, set };

/// No index; no time.
constexpr std::uint32_t no_index = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t no_time = std::numeric_limits<std::int64_t>::min();

/// One kernel, copy or set as the recorder saw it. The end is before the start in broken files;
/// such events are kept, counted and never occupy time.
struct DeviceEvent {
  Span time;
  std::int64_t launch_ns{
      no_time};                  ///< start of the host call that launched it, if it is in the file
  std::uint32_t name{no_index};  ///< in Timeline::names
  std::uint32_t call{no_index};  ///< in Timeline::calls: what the file says of a communication
  /// Stream -1: the file names none; below that: by a text instead of a number.
  std::int32_t device{0}, stream{0};
  /// Number of its process and context within the file; each has streams of its own.
  std::uint32_t context{0};
  DeviceWork work{DeviceWork::kernel};
  bool between_devices{false};  ///< a copy from one device to another
  bool of_graph{false};         ///< a node of a CUDA graph, which orders it instead of its stream
};

/// What runs work one after the other: device, context and stream.
using Queue = std::tuple<std::int32_t, std::uint32_t, std::int32_t>;
/// Nothing for work that no queue is known to order: nodes of graphs, work without a stream, and
/// what takes no time.
[[nodiscard]] inline std::optional<Queue> queue_of(const DeviceEvent& event) {
  if (event.of_graph || event.stream == -1 || event.time.end_ns <= event.time.start_ns)
    return std::nullopt;
  return Queue{event.device, event.context, event.stream};
}

/// Ranks that communicate with each other, as the file describes them.
struct ProcessGroup {
  std::string name, description;  ///< both may be empty
  std::vector<int> ranks;         ///< of the world; empty if the file does not say
  int size{0};                    ///< 0 if the file does not say
};

/// What a file says of one communication: metadata of the kernel, or of the host operation that
/// launched it. Where it says the same of several, they share one of these, so that the number of
/// calls is not the number of collectives.
struct CommunicationCall {
  std::string kind;   ///< the file's word: allreduce, _allgather_base, all_to_allv, send, ...
  std::string dtype;  ///< the file's word: Float, BFloat16, ...; may be empty
  std::uint32_t group{no_index};                   ///< in Timeline::groups
  std::int64_t elements_in{-1}, elements_out{-1};  ///< of this rank; -1 if the file does not say
  std::int64_t sequence{
      -1};       ///< number of the collective in its group; -1 if the file does not say
  int peer{-1};  ///< other rank of a send or receive; -1 if the file does not say
};

/// A named interval on the host: an annotation of the user, a step, an NVTX range.
struct HostRange {
  Span time;
  std::uint32_t name{no_index};  ///< in Timeline::names
};

/// What one rank's device did: one Kineto file, one device of an Nsight Systems export, or one
/// process of a trace of ours. All times in whole nanoseconds on the recorder's clock.
struct Timeline {
  std::string file;
  std::string format;       ///< "Kineto", "Nsight Systems 3.25", "shardmark"
  int rank{-1};             ///< -1 if neither file nor file name says
  int world_size{0};        ///< 0 if the file does not say
  std::string device_name;  ///< may be empty
  std::vector<std::string> names;
  std::vector<DeviceEvent> events;  ///< by start, then end
  std::vector<HostRange> steps;     ///< ProfilerStep#N on the host, by start
  std::vector<HostRange> ranges;    ///< other annotations on the host, by start
  std::vector<ProcessGroup> groups;
  std::vector<CommunicationCall> calls;
  std::int64_t num_events_read{0};    ///< in the file, of all kinds and ranks, host ones included
  std::vector<std::string> warnings;  ///< each a sentence: what was odd and what was made of it
  /// Empty, or where the file breaks off: "truncated at byte 1234, within an event". The events
  /// that are here are whole.
  std::string cut;
  /// What else of the file is broken: "2 events without readable text or time left out, the first
  /// at byte 567". Each a sentence.
  std::vector<std::string> faults;
  /// Empty, or why nothing here tells which work communicates: then there is no verdict.
  std::string no_classes;
};

}  // namespace shardmark
