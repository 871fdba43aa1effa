#include "core/error.hpp"
#include "profiler/read/event_checks.hpp"
#include "profiler/read/find.hpp"
#include "profiler/read/nsys_calls.hpp"
#include "profiler/read/nsys_database.hpp"
#include "profiler/read/nsys_names.hpp"
#include "profiler/read/nsys_ranges.hpp"
#include "profiler/read/nsys_work.hpp"
#include "profiler/read/read.hpp"
#include "profiler/sentences.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace shardmark::nsys {
namespace {

/// What an export says of the machine and of itself.
struct Target {
  std::string version;  ///< of the schema: "3.25"; empty in old files
  std::map<std::int64_t, std::string> device_names;
  int rank{-1}, world_size{0};  ///< from the environment of the program
};

/// The value of a variable in text that lists an environment in some form: NAME=12, "NAME": "12".
/// -1 if it is not there.
int variable_in(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos;
       at = text.find(name, at + 1)) {
    const auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    if (at > 0 && is_word(text[at - 1])) continue;
    const std::string_view rest = text.substr(at + name.size());
    const std::size_t digits = rest.find_first_not_of("=:\"' ");
    int value = -1;
    if (digits != std::string_view::npos && digits > 0 &&
        std::from_chars(rest.data() + digits, rest.data() + rest.size(), value).ec == std::errc{} &&
        value >= 0)
      return value;
  }
  return -1;
}

/// Launchers' variables, the most specific first.
constexpr std::string_view rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                               "RANK", "SLURM_PROCID"};
constexpr std::string_view size_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE",
                                               "SLURM_NTASKS"};

/// The whole environment may be one row, or each variable its own.
int variable_in(const std::vector<std::pair<std::string, std::string>>& rows,
                std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    for (const auto& [property, value] : rows) {
      const int found = variable_in(property + '=' + value, name);
      if (found >= 0) return found;
    }
  return -1;
}

Target read_target(Database& database) {
  Target target;
  database.scan(database.find_table({"META_DATA_EXPORT", "EXPORT_META_DATA"}), {"name", "value"},
                [&](const Row& row) {
                  if (row.bytes(0) != "EXPORT_SCHEMA_VERSION") return;
                  const std::string_view version = row.bytes(1).substr(0, 16);
                  const std::size_t minor = version.find('.');
                  target.version = version.substr(
                      0, minor == std::string_view::npos ? minor : version.find('.', minor + 1));
                });
  database.scan(database.find_table({"TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"}),
                {"id|gpuId|cudaId", "name"}, [&](const Row& row) {
                  std::string_view name = row.bytes(1);
                  name = name.substr(0, name.find_last_not_of(' ') + 1);
                  target.device_names.emplace(row.integer(0).value_or(0), name);
                });
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& table : {database.find_table({"TARGET_INFO_SYSTEM_ENV"}),
                                   database.find_table({"META_DATA_CAPTURE"})})
    database.scan(table, {"name", "value"},
                  [&](const Row& row) { rows.emplace_back(row.bytes(0), row.bytes(1)); });
  target.rank = variable_in(rows, rank_variables);
  target.world_size = std::max(0, variable_in(rows, size_variables));
  return target;
}

/// Throws InputError unless a table is one of Nsight Systems'.
void check_is_export(const Database& database, const std::filesystem::path& file) {
  std::string names;
  for (const std::string& table : database.tables()) {
    if (table == "StringIds" || table == "NVTX_EVENTS" || table.starts_with("TARGET_INFO_") ||
        table.starts_with("META_DATA_") || table == "EXPORT_META_DATA" ||
        table.starts_with("CUPTI_ACTIVITY_KIND_"))
      return;
    if (names.size() < 100) names += (names.empty() ? "" : ", ") + table.substr(0, 40);
  }
  throw InputError{message(file.string(),
                           " is an SQLite database, but no export of Nsight Systems: it has ",
                           names.empty() ? "no tables" : "other tables (" + names + ")",
                           "; make one with `nsys export --type sqlite FILE.nsys-rep`")};
}

/// Moves what the events and ranges of one timeline refer to into its own lists.
class Renumbering {
 public:
  Renumbering(Timeline& timeline, const Names& names, const Calls& calls)
      : timeline_{timeline}, names_{names}, calls_{calls} {}

  std::uint32_t name(std::uint32_t index) {
    return move(name_places_, index, timeline_.names, [&] { return names_[index]; });
  }
  std::uint32_t call(std::uint32_t index) {
    return move(call_places_, index, timeline_.calls, [&] {
      CommunicationCall call = calls_.calls[index];
      call.group = group(call.group);
      return call;
    });
  }

 private:
  std::uint32_t group(std::uint32_t index) {
    return move(group_places_, index, timeline_.groups, [&] { return calls_.groups[index]; });
  }
  template <class Item, class Make>
  static std::uint32_t move(std::map<std::uint32_t, std::uint32_t>& places, std::uint32_t index,
                            std::vector<Item>& items, const Make& make) {
    if (index == no_index) return no_index;
    const auto [place, is_new] =
        places.try_emplace(index, static_cast<std::uint32_t>(items.size()));
    if (is_new) items.push_back(make());
    return place->second;
  }

  Timeline& timeline_;
  const Names& names_;
  const Calls& calls_;
  std::map<std::uint32_t, std::uint32_t> name_places_, call_places_, group_places_;
};

/// Host ranges of the processes that used the device; of all processes if the file does not say.
void add_ranges(Timeline& timeline, Renumbering& numbers, const Ranges& ranges,
                const std::set<std::uint64_t>* processes, const Names& names) {
  for (const auto& [process, list] : ranges.annotations) {
    if (processes != nullptr && !processes->contains(process)) continue;
    for (const HostRange& range : list) {
      const bool is_step = names[range.name].starts_with("ProfilerStep#");
      (is_step ? timeline.steps : timeline.ranges)
          .push_back({range.time, numbers.name(range.name)});
    }
  }
  const auto by_time = [](const HostRange& range) {
    return std::tuple{range.time.start_ns, -range.time.end_ns};
  };
  std::ranges::stable_sort(timeline.steps, {}, by_time);
  std::ranges::stable_sort(timeline.ranges, {}, by_time);
}

std::int64_t num_host_rows(const std::map<std::uint64_t, std::int64_t>& rows,
                           const std::set<std::uint64_t>* processes) {
  std::int64_t sum = 0;
  for (const auto& [process, count] : rows)
    if (processes == nullptr || processes->contains(process)) sum += count;
  return sum;
}

/// Everything that was read of a file.
struct Export {
  Names names;
  Work work;
  Ranges ranges;
  Calls calls;
  Target target;
};

/// Why nothing in the file tells which work communicates; empty if its kernels' names do.
std::string why_no_classes(const Work& work) {
  if (work.events.empty()) return {};
  if (!work.has_kernels)
    return "no table of kernels (CUPTI_ACTIVITY_KIND_KERNEL) can be read, so what was computed or "
           "communicated is not known";
  if (work.num_kernels > 0 && work.num_unnamed == work.num_kernels)
    return "the file has no names of kernels (table StringIds), so communication cannot be told "
           "from compute";
  return {};
}

std::vector<std::string> warnings_of(const Work& work, const Ranges& ranges,
                                     std::size_t num_devices) {
  std::vector<std::string> warnings;
  for (const std::string& table : work.unreadable)
    warnings.push_back("table " + table + ", so its rows are left out");
  if (work.events.empty() && work.unreadable.empty())
    warnings.push_back(
        message(work.has_tables ? "no GPU work was recorded"
                                : "no GPU work: the file has no table CUPTI_ACTIVITY_KIND_KERNEL, "
                                  "_MEMCPY or _MEMSET",
                " (record it with `nsys profile --trace=cuda,nvtx`)"));
  if (num_devices > 1)
    warnings.push_back(message("the file has ", num_devices,
                               " devices; each is taken for the rank of its number"));
  if (work.num_left_out > 0)
    warnings.push_back(message(counted(work.num_left_out, "row"), " of GPU work ",
                               work.num_left_out == 1 ? "is" : "are",
                               " left out: times that are no integers, or a device that is no "
                               "number from 0 to 63"));
  const std::string no_classes = why_no_classes(work);
  if (!no_classes.empty())
    warnings.push_back(no_classes);
  else if (work.num_unnamed > 0)
    warnings.push_back(counted(work.num_unnamed, "kernel",
                               "has no name in the file and counts as compute",
                               "have no name in the file and count as compute"));
  if (work.num_graphs > 0)
    warnings.push_back(counted(work.num_graphs, "CUDA graph", "was", "were") +
                       " recorded as a whole, so that communication within counts as compute "
                       "(record with --cuda-graph-trace=node)");
  if (ranges.num_open > 0)
    warnings.push_back(counted(ranges.num_open, "NVTX range",
                               "had not ended when the recording did; it is left out",
                               "had not ended when the recording did; they are left out"));
  return warnings;
}

/// `events`: those of the device, to be renumbered.
void fill(Timeline& timeline, std::vector<DeviceEvent> events, const Export& all) {
  const auto users =
      events.empty() ? all.work.processes.end() : all.work.processes.find(events.front().device);
  const std::set<std::uint64_t>* processes =
      users == all.work.processes.end() ? nullptr : &users->second;
  Renumbering numbers{timeline, all.names, all.calls};
  for (DeviceEvent& event : events) {
    event.name = numbers.name(event.name);
    event.call = numbers.call(event.call);
  }
  std::ranges::stable_sort(events, {}, [](const DeviceEvent& event) {
    return std::pair{event.time.start_ns, event.time.end_ns};
  });
  timeline.events = std::move(events);
  add_ranges(timeline, numbers, all.ranges, processes, all.names);
  timeline.num_events_read = static_cast<std::int64_t>(timeline.events.size()) +
                             num_host_rows(all.work.num_calls, processes) +
                             num_host_rows(all.ranges.num_rows, processes);
  std::ranges::move(check_events(timeline), std::back_inserter(timeline.warnings));
  if (processes != nullptr && processes->size() > 1)
    timeline.warnings.push_back(message("device ", timeline.events.front().device, " was used by ",
                                        processes->size(),
                                        " processes, whose work is in one timeline"));
}

std::vector<Timeline> read(const std::filesystem::path& file) {
  Database database{file};
  check_is_export(database, file);
  Export all;
  StringTable strings{database, all.names};
  all.work = read_work(database, strings, all.names);
  all.ranges = read_ranges(database, strings, all.names);
  all.calls = find_calls(all.work, std::move(all.ranges.nccl), all.names);
  all.target = read_target(database);

  std::map<std::int32_t, std::vector<DeviceEvent>> devices;
  for (const DeviceEvent& event : all.work.events) devices[event.device].push_back(event);
  if (devices.empty() && !database.damage().empty())
    throw InputError{
        message(file.string(), " is damaged, and no GPU work before that: ", database.damage())};
  std::vector<std::string> warnings = warnings_of(all.work, all.ranges, devices.size());
  std::error_code none;
  const auto log_bytes = std::filesystem::file_size(file.string() + "-wal", none);
  if (!none && log_bytes > 0)
    warnings.push_back(message("the log beside it, ", file.filename().string(),
                               "-wal, is not read: is the export still being written?"));
  const std::string no_classes = why_no_classes(all.work);
  all.work.events = {};
  if (devices.empty()) devices[0];

  const NamedRank named = rank_of_name(file);
  std::vector<Timeline> timelines;
  for (auto& [device, events] : devices) {
    Timeline& timeline = timelines.emplace_back();
    timeline.file = file.string();
    timeline.format =
        "Nsight Systems" + (all.target.version.empty() ? "" : ' ' + all.target.version);
    timeline.world_size = named.world_size > 0 ? named.world_size : all.target.world_size;
    timeline.rank = devices.size() > 1 ? device : named.rank >= 0 ? named.rank : all.target.rank;
    const auto name = all.target.device_names.find(device);
    if (name != all.target.device_names.end()) timeline.device_name = name->second;
    timeline.cut = database.damage();
    timeline.no_classes = no_classes;
    timeline.warnings = std::exchange(warnings, {});  // of the file: once
    fill(timeline, std::move(events), all);
  }
  return timelines;
}

}  // namespace
}  // namespace shardmark::nsys

namespace shardmark {

std::vector<Timeline> read_nsys(const std::filesystem::path& file) { return nsys::read(file); }

}  // namespace shardmark
