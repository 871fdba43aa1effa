#include "bench/analyze/merged_trace.hpp"

#include "bench/analyze/collectives.hpp"
#include "bench/harness/text_archive.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace shardmark::bench {
namespace {

using Recorded = shardmark::Timeline;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds with all their nanoseconds.
std::string in_us(std::int64_t ns) {
  const char* sign = ns < 0 ? "-" : "";
  const std::int64_t size = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

/// Rows of one process, in the order in which Perfetto shows them.
enum class Lane { step, range, launch, compute, communication, copy };

/// Threads of one process. Perfetto drops events that overlap others of their thread, so a lane has
/// as many threads as it needs; host ranges may lie within each other.
class Threads {
 public:
  /// The thread for an event of a lane, which come by their starts.
  int place(Lane lane, const std::string& name, const Span& time) {
    std::vector<Thread>& threads = lanes_[{lane, name}];
    const bool may_nest = lane == Lane::step || lane == Lane::range;
    for (Thread& thread : threads) {
      std::vector<std::int64_t>& ends = thread.open_ends_ns;
      while (!ends.empty() && ends.back() <= time.start_ns) ends.pop_back();
      if (!ends.empty() && !(may_nest && time.end_ns <= ends.back())) continue;
      ends.push_back(time.end_ns);
      return thread.number;
    }
    // Beyond that the file is broken, and looking for a free thread would take long.
    constexpr std::size_t most_threads = 64;
    if (threads.size() < most_threads) threads.push_back({num_++, {time.end_ns}});
    return threads.back().number;
  }

  /// Calls `visit(number, title, place)` for every thread.
  template <class Visit>
  void for_each(const Visit& visit) const {
    int place = 0;
    for (const auto& [lane, threads] : lanes_)
      for (std::size_t i = 0; i < threads.size(); ++i)
        visit(threads[i].number, i == 0 ? lane.second : fmt::format("{} ({})", lane.second, i + 1),
              place++);
  }

 private:
  struct Thread {
    int number;
    std::vector<std::int64_t> open_ends_ns;  ///< of the events that a further one may lie in
  };
  std::map<std::pair<Lane, std::string>, std::vector<Thread>> lanes_;
  int num_{0};
};

/// Names of groups, each of which has to mean the same members on all ranks of the trace.
class GroupNames {
 public:
  std::string name_of(const ProcessGroup& group, int rank) {
    const auto [known, is_new] = members_.try_emplace(group.name, group.ranks, group.size);
    if (is_new || known->second == std::pair{group.ranks, group.size}) return group.name;
    if (group.ranks.empty()) return fmt::format("{} of rank {}", group.name, rank);
    return fmt::format("{} [{}]", group.name, fmt::join(group.ranks, ", "));
  }

 private:
  std::map<std::string, std::pair<std::vector<int>, int>> members_;
};

class TraceWriter {
 public:
  TraceWriter(const std::string& path, const Recording& recording,
              const std::map<std::string, std::string>& axis_of)
      : archive_{path}, world_size_{recording.world_size}, axis_of_{axis_of} {
    add(R"({{"schemaVersion": 1, "displayTimeUnit": "ms", "distributedInfo": )"
        R"({{"backend": "merged", "rank": 0, "world_size": {}}}, "deviceProperties": [)",
        world_size_);
    // As our reader takes them: by rank, since devices of several hosts have the same numbers.
    bool is_first = true;
    for (const RankRecording& rank : recording.ranks)
      if (const Recorded& timeline = rank.timeline; !timeline.device_name.empty())
        add(R"({}{{"id": {}, "name": {}}})", std::exchange(is_first, false) ? "" : ", ",
            timeline.rank, quoted(timeline.device_name));
    add(R"(], "traceEvents": [)");
  }

  void add_rank(const RankRecording& rank, std::int64_t offset_ns) {
    const Recorded& timeline = rank.timeline;
    names_.clear();
    for (const std::string& name : timeline.names) names_.push_back(quoted(name));
    names_.push_back(quoted("?"));
    describe_calls(timeline);
    Threads threads;
    add_title(timeline, offset_ns, threads);
    for (const auto& [lane, list, name] : {std::tuple{Lane::step, &timeline.steps, "steps"},
                                           std::tuple{Lane::range, &timeline.ranges, "ranges"}})
      for (const HostRange& range : *list) {
        const Span time = shifted(range.time, offset_ns);
        add_event("user_annotation", text_of(range.name), timeline.rank,
                  threads.place(lane, name, time), time);
        buffer_ += '}';
      }
    add_launches(timeline, offset_ns, threads);
    for (std::size_t i = 0; i < timeline.events.size(); ++i)
      add_device_event(timeline, timeline.events[i], rank.classes[i], offset_ns, threads);
    name_rows(timeline, threads);
  }

  void finish() {
    add("\n]}}\n");
    flush();
    archive_.close();
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Values>(values)...);
    constexpr std::size_t batch_bytes = 1 << 20;
    if (buffer_.size() > batch_bytes) flush();
  }
  void flush() {
    archive_.write(buffer_);
    buffer_.clear();
  }

  static Span shifted(const Span& time, std::int64_t by_ns) {
    return {time.start_ns + by_ns, time.end_ns + by_ns};
  }
  const std::string& text_of(std::uint32_t name) const {
    return names_[std::min<std::size_t>(name, names_.size() - 1)];
  }

  /// Without its closing brace, so that args can follow.
  void add_event(const char* category, const std::string& quoted_name, int rank, int thread,
                 const Span& time) {
    add("{}\n{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": {}, \"pid\": {}, \"tid\": {}, "
        "\"ts\": {}, \"dur\": {}",
        std::exchange(is_first_, false) ? "" : ",", category, quoted_name, rank, thread,
        in_us(time.start_ns), in_us(time.end_ns - time.start_ns));
  }

  /// Tells readers of ours that the processes are ranks, and people where the rank comes from.
  void add_title(const Recorded& timeline, std::int64_t offset_ns, Threads& threads) {
    if (timeline.events.empty()) return;
    Span time = timeline.events.front().time;
    for (const DeviceEvent& event : timeline.events)
      time.end_ns = std::max(time.end_ns, event.time.end_ns);
    time = shifted(time, offset_ns);
    add_event("user_annotation", quoted("row 0: " + timeline.file), timeline.rank,
              threads.place(Lane::step, "recording", time), time);
    buffer_ += '}';
  }

  /// One call for all that was launched at the same time, as a graph's nodes are.
  void add_launches(const Recorded& timeline, std::int64_t offset_ns, Threads& threads) {
    launch_of_.clear();
    for (const DeviceEvent& event : timeline.events)
      if (event.launch_ns != no_time) launch_of_.try_emplace(event.launch_ns);
    for (auto& [launch_ns, number] : launch_of_) {
      number = ++num_launches_;
      const Span time = shifted({launch_ns, launch_ns}, offset_ns);
      add_event("cuda_runtime", "\"launch\"", timeline.rank,
                threads.place(Lane::launch, "launches", time), time);
      add(R"(, "args": {{"correlation": {}}}}})", number);
    }
  }

  void add_device_event(const Recorded& timeline, const DeviceEvent& event, WorkClass work,
                        std::int64_t offset_ns, Threads& threads) {
    const Span time = shifted(event.time, offset_ns);
    const bool has_call = event.call < timeline.calls.size();
    std::string lane = "compute";
    if (work == WorkClass::memory) lane = "copies";
    if (work == WorkClass::communication)
      lane = has_call && !purposes_[event.call].empty()
                 ? purposes_[event.call] + " communication"
                 : fmt::format("communication, stream {}", event.stream);
    const Lane kind = work == WorkClass::compute         ? Lane::compute
                      : work == WorkClass::communication ? Lane::communication
                                                         : Lane::copy;
    const char* category = event.work == DeviceWork::kernel ? "kernel"
                           : event.work == DeviceWork::copy ? "gpu_memcpy"
                                                            : "gpu_memset";
    add_event(category, text_of(event.name), timeline.rank, threads.place(kind, lane, time), time);
    add(R"(, "args": {{"device": {}, "stream": {})", event.device, event.stream);
    if (event.launch_ns != no_time) add(R"(, "correlation": {})", launch_of_.at(event.launch_ns));
    add("{}}}}}", has_call ? args_[event.call] : std::string{});
  }

  /// Args and purposes of all calls of a rank, as PyTorch's profiler names them.
  void describe_calls(const Recorded& timeline) {
    args_.clear();
    purposes_.clear();
    for (const CommunicationCall& call : timeline.calls) {
      std::string args = R"(, "Collective name": )" + quoted(call.kind);
      const auto add_text = [&](const char* key, const std::string& text) {
        if (!text.empty()) args += fmt::format(R"(, "{}": {})", key, quoted(text));
      };
      const auto add_number = [&](const char* key, std::int64_t number) {
        if (number >= 0) args += fmt::format(R"(, "{}": {})", key, number);
      };
      add_text("dtype", call.dtype);
      add_number("In msg nelems", call.elements_in);
      add_number("Out msg nelems", call.elements_out);
      add_number("Seq", call.sequence);
      const bool receives = call.kind.find("recv") != std::string::npos;
      add_number(receives ? "Src Rank" : "Dst Rank", call.peer);
      std::string purpose;
      if (call.group < timeline.groups.size()) {
        const ProcessGroup& group = timeline.groups[call.group];
        add_text("Process Group Name", group_names_.name_of(group, timeline.rank));
        add_text("Process Group Description", group.description);
        if (!group.ranks.empty())
          add_text("Process Group Ranks", fmt::format("[{}]", fmt::join(group.ranks, ", ")));
        if (group.size > 0) add_number("Group size", group.size);
        purpose = purpose_of(group, world_size_, axis_of_, kind_of_call(call));
      }
      args_.push_back(std::move(args));
      purposes_.push_back(purpose == "?" ? "" : purpose);
    }
  }

  void name_rows(const Recorded& timeline, const Threads& threads) {
    const auto add_metadata = [&](const char* kind, int thread, const std::string& value) {
      add("{}\n{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"args\": {{{}}}}}",
          std::exchange(is_first_, false) ? "" : ",", kind, timeline.rank, thread, value);
    };
    const int rank = timeline.rank;
    add_metadata("process_name", 0, fmt::format(R"("name": "rank {}")", rank));
    add_metadata("process_labels", 0, R"("labels": )" + quoted(timeline.device_name));
    add_metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", rank));
    threads.for_each([&](int thread, const std::string& title, int place) {
      add_metadata("thread_name", thread, R"("name": )" + quoted(title));
      add_metadata("thread_sort_index", thread, fmt::format(R"("sort_index": {})", place));
    });
  }

  TextArchive archive_;
  int world_size_;
  const std::map<std::string, std::string>& axis_of_;
  std::string buffer_;
  bool is_first_{true};
  GroupNames group_names_;
  std::vector<std::string> names_;                  ///< of a rank, in quotes; the last for none
  std::vector<std::string> args_, purposes_;        ///< of a rank's calls
  std::map<std::int64_t, std::int64_t> launch_of_;  ///< of a rank: time -> correlation
  std::int64_t num_launches_{0};                    ///< of all ranks
};

/// The first start of anything on any rank.
std::int64_t begin_of(const Recording& recording, const std::vector<std::int64_t>& offset_ns) {
  std::optional<std::int64_t> begin_ns;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const Recorded& timeline = recording.ranks[i].timeline;
    const auto look_at = [&](const auto& list) {
      for (const auto& item : list)
        begin_ns = std::min(begin_ns.value_or(std::numeric_limits<std::int64_t>::max()),
                            item.time.start_ns + offset_ns[i]);
    };
    look_at(timeline.events);
    for (const DeviceEvent& event : timeline.events)
      if (event.launch_ns != no_time)
        begin_ns = std::min(*begin_ns, event.launch_ns + offset_ns[i]);
    look_at(timeline.steps);
    look_at(timeline.ranges);
  }
  return begin_ns.value_or(0);
}

}  // namespace

void write_merged_trace(const Recording& recording, const std::vector<std::int64_t>& offset_ns,
                        const std::string& path,
                        const std::map<std::string, std::string>& axis_of) {
  std::vector<std::int64_t> offsets = offset_ns;
  offsets.resize(recording.ranks.size(), 0);
  const std::int64_t begin_ns = begin_of(recording, offsets);
  const std::string suffix = TextArchive::suffix();
  const bool has_suffix = !suffix.empty() && path.ends_with(suffix);
  TraceWriter writer{has_suffix ? path.substr(0, path.size() - suffix.size()) : path, recording,
                     axis_of};
  for (std::size_t i = 0; i < recording.ranks.size(); ++i)
    writer.add_rank(recording.ranks[i], offsets[i] - begin_ns);
  writer.finish();
}

}  // namespace shardmark::bench
