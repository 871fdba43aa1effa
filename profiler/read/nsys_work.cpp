#include "profiler/read/nsys_work.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace shardmark::nsys {
namespace {

/// More devices than a machine has mean that the column holds something else.
constexpr std::int64_t max_devices = 64;
/// CUPTI's kinds of copies, by number (CUpti_ActivityMemcpyKind).
constexpr std::array copy_names{"Memcpy",
                                "Memcpy HtoD",
                                "Memcpy DtoH",
                                "Memcpy HtoA",
                                "Memcpy AtoH",
                                "Memcpy AtoA",
                                "Memcpy AtoD",
                                "Memcpy DtoA",
                                "Memcpy DtoD",
                                "Memcpy HtoH",
                                "Memcpy PtoP",
                                "Memcpy HtoD (unified)",
                                "Memcpy DtoH (unified)",
                                "Memcpy DtoD (unified)"};
constexpr std::int64_t device_to_device = 8, peer_to_peer = 10;

class WorkReader {
 public:
  WorkReader(Database& database, StringTable& strings, Names& names)
      : database_{database}, strings_{strings}, names_{names} {}

  Work read() {
    read_kernels();
    read_graphs();
    read_copies();
    read_sets();
    find_launches();
    return std::move(work_);
  }

 private:
  using Key = std::pair<std::uint64_t, std::int64_t>;  ///< process, correlation
  /// An event that waits for its host call. A graph's call is that of all its kernels.
  struct Waiting {
    Key key;
    std::uint32_t event;
  };
  struct Call {
    Key key;
    std::int64_t start_ns{no_time}, thread{0};
  };

  /// Every table of device work starts with these columns.
  static constexpr int next_column = 8;

  /// Nothing for a row that is left out.
  DeviceEvent* add(const Row& row, DeviceWork kind) {
    const auto start = row.integer(0), end = row.integer(1);
    const auto device = row.integer(2), stream = row.integer(3);
    // Old files of one device do not number it.
    if (!is_time(start) || !is_time(end) || device.value_or(0) < 0 ||
        device.value_or(0) >= max_devices) {
      ++work_.num_left_out;
      return nullptr;
    }
    DeviceEvent event{.time = {*start, *end}, .work = kind};
    event.device = static_cast<std::int32_t>(device.value_or(0));
    event.stream = static_cast<std::int32_t>(stream.value_or(-1));
    const auto correlation = row.integer(4), process = row.integer(5);
    const std::pair context{process ? process_of(*process) : 0, row.integer(6).value_or(0)};
    event.context =
        contexts_.try_emplace(context, static_cast<std::uint32_t>(contexts_.size())).first->second;
    event.of_graph = row.integer(7).value_or(0) != 0;
    if (process) {
      work_.knows_processes = true;
      work_.processes[event.device].insert(process_of(*process));
    }
    if (correlation && *correlation != 0)
      waiting_.push_back({.key = {process ? process_of(*process) : 0, *correlation},
                          .event = static_cast<std::uint32_t>(work_.events.size())});
    work_.events.push_back(event);
    return &work_.events.back();
  }

  /// Empty if there is none that can be read.
  std::string find(std::initializer_list<std::string_view> names) {
    const std::string table = database_.find_table(names);
    if (table.empty()) return table;
    work_.has_tables = true;
    for (const std::string_view column : {"start", "end"})
      if (!database_.has_column(table, column)) {
        work_.unreadable.push_back(message(table, " has no column ", column));
        return {};
      }
    return table;
  }

  void read_kernels() {
    const std::uint32_t unnamed = names_.add("kernel without a name");
    const std::string table =
        find({"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"});
    work_.has_kernels = !table.empty();
    database_.scan(table,
                   {"start", "end", "deviceId|device", "streamId|stream", "correlationId",
                    "globalPid", "contextId|context", "graphNodeId", "demangledName|nameId|name",
                    "shortName", "mangledName"},
                   [&](const Row& row) {
                     DeviceEvent* event = add(row, DeviceWork::kernel);
                     if (event == nullptr) return;
                     ++work_.num_kernels;
                     for (int column = next_column;
                          column < next_column + 3 && event->name == no_index; ++column)
                       event->name = name_in(row, column);
                     if (event->name != no_index) return;
                     event->name = unnamed;
                     ++work_.num_unnamed;
                   });
  }

  /// The column refers to a string, or is one.
  std::uint32_t name_in(const Row& row, int column) {
    if (const auto id = row.integer(column)) return strings_.find(*id);
    const std::string_view text = row.bytes(column);
    return text.empty() ? no_index : names_.add(text);
  }

  void read_graphs() {
    const std::string table = find({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE"});
    work_.has_kernels = work_.has_kernels || !table.empty();
    database_.scan(table,
                   {"start", "end", "deviceId|device", "streamId|stream", "correlationId",
                    "globalPid", "contextId|context", "graphNodeId", "graphId"},
                   [&](const Row& row) {
                     DeviceEvent* event = add(row, DeviceWork::kernel);
                     if (event == nullptr) return;
                     ++work_.num_graphs;
                     const auto graph = row.integer(next_column);
                     event->name =
                         names_.add(graph ? "CUDA graph " + std::to_string(*graph) : "CUDA graph");
                   });
  }

  void read_copies() {
    database_.scan(
        find({"CUPTI_ACTIVITY_KIND_MEMCPY"}),
        {"start", "end", "deviceId|device", "streamId|stream", "correlationId", "globalPid",
         "contextId|context", "graphNodeId", "copyKind", "srcDeviceId", "dstDeviceId"},
        [&](const Row& row) {
          DeviceEvent* event = add(row, DeviceWork::copy);
          if (event == nullptr) return;
          const std::int64_t kind = row.integer(next_column).value_or(0);
          const auto from = row.integer(next_column + 1), to = row.integer(next_column + 2);
          const bool is_known = kind > 0 && kind < static_cast<std::int64_t>(copy_names.size());
          event->between_devices =
              kind == peer_to_peer || (kind == device_to_device && from && to && *from != *to);
          const std::int64_t named = event->between_devices ? peer_to_peer : is_known ? kind : 0;
          event->name = names_.add(copy_names[static_cast<std::size_t>(named)]);
        });
  }

  void read_sets() {
    const std::uint32_t name = names_.add("Memset");
    database_.scan(find({"CUPTI_ACTIVITY_KIND_MEMSET"}),
                   {"start", "end", "deviceId|device", "streamId|stream", "correlationId",
                    "globalPid", "contextId|context", "graphNodeId"},
                   [&](const Row& row) {
                     if (DeviceEvent* event = add(row, DeviceWork::set)) event->name = name;
                   });
  }

  void find_launches() {
    std::ranges::sort(waiting_, {}, [](const Waiting& one) {
      return std::pair{one.key, one.event};
    });
    // Several of one call are a graph, which old files do not say of them.
    for (std::size_t i = 1; i < waiting_.size(); ++i)
      if (waiting_[i].key == waiting_[i - 1].key)
        work_.events[waiting_[i].event].of_graph = work_.events[waiting_[i - 1].event].of_graph =
            true;
    std::vector<Call> calls;
    for (const Waiting& one : waiting_)
      if (calls.empty() || calls.back().key != one.key) calls.push_back({.key = one.key});
    const std::string table = database_.find_table({"CUPTI_ACTIVITY_KIND_RUNTIME"});
    database_.scan(table, {"start", "globalTid", "correlationId"}, [&](const Row& row) {
      const auto start = row.integer(0), thread = row.integer(1), correlation = row.integer(2);
      const std::uint64_t process = thread ? process_of(*thread) : 0;
      ++work_.num_calls[process];
      if (!is_time(start) || !correlation) return;
      const Key key{work_.knows_processes ? process : 0, *correlation};
      const auto call = std::ranges::lower_bound(calls, key, {}, &Call::key);
      if (call == calls.end() || call->key != key) return;
      if (call->start_ns == no_time || *start < call->start_ns)
        *call = {key, *start, thread.value_or(0)};
    });
    auto call = calls.begin();
    for (const Waiting& one : waiting_) {
      while (call->key != one.key) ++call;
      if (call->start_ns == no_time) continue;
      work_.events[one.event].launch_ns = call->start_ns;
      work_.launches.push_back({one.event, call->thread});
    }
  }

  Database& database_;
  StringTable& strings_;
  Names& names_;
  std::vector<Waiting> waiting_;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::uint32_t> contexts_;  ///< of processes
  Work work_;
};

}  // namespace

Work read_work(Database& database, StringTable& strings, Names& names) {
  return WorkReader{database, strings, names}.read();
}

}  // namespace shardmark::nsys
