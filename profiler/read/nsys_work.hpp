#pragma once

#include "profiler/read/nsys_names.hpp"
#include "profiler/timeline.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shardmark::nsys {

/// Serialized process of a globalTid or globalPid: machine and process, without the thread.
[[nodiscard]] constexpr std::uint64_t process_of(std::int64_t global_id) {
  return static_cast<std::uint64_t>(global_id) >> 24U;
}

/// Times within these bounds can be subtracted from each other.
[[nodiscard]] constexpr bool is_time(std::optional<std::int64_t> time_ns) {
  constexpr std::int64_t limit_ns = std::int64_t{1} << 61U;
  return time_ns && *time_ns > -limit_ns && *time_ns < limit_ns;
}

/// The host call that launched an event.
struct Launch {
  std::uint32_t event{no_index};  ///< in Work::events
  std::int64_t thread{0};         ///< globalTid
};

/// The device work of a file, of all devices. Names are of the file.
struct Work {
  std::vector<DeviceEvent> events;  ///< by table and row
  std::vector<Launch> launches;     ///< of the events whose call is in the file
  std::map<std::int32_t, std::set<std::uint64_t>> processes;  ///< of each device
  std::map<std::uint64_t, std::int64_t> num_calls;            ///< host calls per process
  std::int64_t num_graphs{0};    ///< launches of CUDA graphs that were recorded as a whole
  std::int64_t num_left_out{0};  ///< rows without integer times or a device number
  std::int64_t num_kernels{0}, num_unnamed{0};  ///< of them those whose name is not in the file
  bool knows_processes{false};                  ///< the tables name them
  bool has_tables{false};                       ///< at least one table of device work is there
  bool has_kernels{false};                      ///< a table of kernels or graphs can be read
  std::vector<std::string> unreadable;  ///< "CUPTI_ACTIVITY_KIND_KERNEL has no column start"
};

/// Kernels, copies, sets and whole graphs, with the time of the host call that launched each.
[[nodiscard]] Work read_work(Database& database, StringTable& strings, Names& names);

}  // namespace shardmark::nsys
