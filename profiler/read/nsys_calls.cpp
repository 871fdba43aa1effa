#include "profiler/read/nsys_calls.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cctype>
#include <ios>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

namespace shardmark::nsys {
namespace {

/// One collective or message that a program asked for.
struct Request {
  std::string_view call;  ///< of NcclRange
  const NcclPayload* payload;
};

/// Part of a thread's time in which it launches the kernels of some requests.
struct LaunchWindow {
  Span time;
  std::int64_t thread{0};
  std::size_t first{0}, last{0};  ///< of the requests [first, last)
};

bool is_message(std::string_view call) { return call == "Send" || call == "Recv"; }

/// The operations of NCCL's and RCCL's API, as opposed to ncclCommCount and the like.
bool is_operation(std::string_view call) {
  for (const std::string_view word :
       {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Bcast", "Reduce", "AlltoAll",
        "AllToAll", "Gather", "Scatter"})
    if (call.starts_with(word)) return true;
  return is_message(call);
}

/// -1 for what is not known or beyond all bounds.
std::int64_t sum_of(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

/// Lays requests and launch windows out in the order of each thread's time.
class Program {
 public:
  explicit Program(std::vector<NcclRange>& ranges) {
    std::ranges::sort(ranges, {}, [](const NcclRange& range) {
      return std::tuple{range.thread, range.time.start_ns, -range.time.end_ns};
    });
    int depth = 0;
    std::int64_t thread = 0;
    std::size_t group_first = 0;
    for (const NcclRange& range : ranges) {
      if (std::exchange(thread, range.thread) != range.thread) depth = 0;
      if (range.payload.communicator && range.payload.num_ranks > 0)
        num_ranks[*range.payload.communicator] = range.payload.num_ranks;
      if (range.call == "GroupStart") {
        if (depth++ == 0) group_first = requests.size();
      } else if (range.call == "GroupEnd") {
        // Its start may be before that of the recording.
        if (depth > 0 && --depth == 0)
          windows.push_back({range.time, range.thread, group_first, requests.size()});
      } else if (is_operation(range.call)) {
        requests.push_back({range.call, &range.payload});
        if (depth == 0)
          windows.push_back({range.time, range.thread, requests.size() - 1, requests.size()});
      }
    }
  }

  /// The window that `time_ns` of a thread lies in.
  [[nodiscard]] std::optional<std::size_t> window_at(std::int64_t thread,
                                                     std::int64_t time_ns) const {
    const auto next = std::ranges::upper_bound(
        windows, std::tuple{thread, time_ns}, {}, [](const LaunchWindow& window) {
          return std::tuple{window.thread, window.time.start_ns};
        });
    if (next == windows.begin()) return std::nullopt;
    const LaunchWindow& window = *std::prev(next);
    if (window.thread != thread || window.time.end_ns < time_ns) return std::nullopt;
    return static_cast<std::size_t>(std::prev(next) - windows.begin());
  }

  std::vector<Request> requests;
  std::vector<LaunchWindow> windows;       ///< by thread, then start
  std::map<std::uint64_t, int> num_ranks;  ///< of communicators that were made in the recording
};

class CallWriter {
 public:
  explicit CallWriter(const Program& program) : program_{program} {}

  /// One call for all of `requests`; nothing if they have no kind in common.
  std::optional<std::uint32_t> add(std::span<const Request> requests, bool with_sizes) {
    if (requests.empty()) return std::nullopt;
    const auto is = [&](const auto& holds) { return std::ranges::all_of(requests, holds); };
    const Request& first = requests.front();
    const bool messages = is([](const Request& one) { return is_message(one.call); });
    const bool alike = is([&](const Request& one) { return one.call == first.call; });
    if (!messages && !alike) return std::nullopt;
    CommunicationCall call;
    call.kind = alike ? first.call : "SendRecv";
    if (requests.size() == 1) call.peer = first.payload->peer;
    if (is([&](const Request& one) {
          return one.payload->communicator == first.payload->communicator;
        }))
      call.group = group_of(first.payload->communicator);
    if (with_sizes) set_sizes(requests, alike, call);
    result_.calls.push_back(std::move(call));
    return static_cast<std::uint32_t>(result_.calls.size() - 1);
  }

  Calls take() { return std::move(result_); }

 private:
  std::uint32_t group_of(std::optional<std::uint64_t> communicator) {
    if (!communicator) return no_index;
    const auto [place, is_new] =
        places_.try_emplace(*communicator, static_cast<std::uint32_t>(result_.groups.size()));
    if (is_new) {
      const auto size = program_.num_ranks.find(*communicator);
      ProcessGroup& group = result_.groups.emplace_back();
      group.name = message("communicator 0x", std::hex, *communicator);
      if (size != program_.num_ranks.end()) group.size = size->second;
    }
    return place->second;
  }

  /// What the rank puts in and gets out, in bytes.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> sizes_of(const Request& request) const {
    const std::int64_t bytes = request.payload->bytes;
    const auto size = program_.num_ranks.find(request.payload->communicator.value_or(0));
    const std::int64_t all =
        bytes < 0 || size == program_.num_ranks.end() ? -1 : bytes * size->second;
    const std::string_view call = request.call;
    if (call.starts_with("AllGather") || call.starts_with("Gather")) return {bytes, all};
    if (call.starts_with("ReduceScatter") || call.starts_with("Scatter")) return {all, bytes};
    if (call.starts_with("AlltoAll") || call.starts_with("AllToAll")) return {all, all};
    return {bytes, bytes};
  }

  void set_sizes(std::span<const Request> requests, bool alike, CommunicationCall& call) const {
    std::int64_t in = 0, out = 0;
    for (const Request& request : requests) {
      const auto [request_in, request_out] = sizes_of(request);
      if (alike || request.call != "Recv") in = sum_of(in, request_in);
      if (alike || request.call != "Send") out = sum_of(out, request_out);
    }
    call.elements_in = in;
    call.elements_out = out;
    if (in >= 0 || out >= 0) call.dtype = "Byte";
  }

  const Program& program_;
  std::map<std::uint64_t, std::uint32_t> places_;
  Calls result_;
};

bool is_nccl_kernel(std::string_view name) {
  constexpr std::string_view word = "nccl";
  return std::search(name.begin(), name.end(), word.begin(), word.end(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == b;
         }) != name.end();
}

}  // namespace

Calls find_calls(Work& work, std::vector<NcclRange> ranges, const Names& names) {
  if (ranges.empty()) return {};
  const Program program{ranges};
  std::vector<std::optional<bool>> is_nccl(names.size());
  std::map<std::size_t, std::vector<std::uint32_t>> launched;  // events of each window
  for (const Launch& launch : work.launches) {
    const DeviceEvent& event = work.events[launch.event];
    if (event.work != DeviceWork::kernel) continue;
    std::optional<bool>& known = is_nccl[event.name];
    if (!known) known = is_nccl_kernel(names[event.name]);
    if (!*known) continue;
    if (const auto window = program.window_at(launch.thread, event.launch_ns))
      launched[*window].push_back(launch.event);
  }
  CallWriter writer{program};
  for (auto& [window, events] : launched) {
    const LaunchWindow& of = program.windows[window];
    const std::span<const Request> requests{program.requests.data() + of.first, of.last - of.first};
    std::ranges::sort(events, {}, [&](std::uint32_t event) {
      return std::pair{work.events[event].launch_ns, event};
    });
    if (events.size() == requests.size()) {
      for (std::size_t i = 0; i < events.size(); ++i)
        if (const auto call = writer.add(requests.subspan(i, 1), true))
          work.events[events[i]].call = *call;
    } else if (const auto call = writer.add(requests, events.size() == 1)) {
      for (const std::uint32_t event : events) work.events[event].call = *call;
    }
  }
  return writer.take();
}

}  // namespace shardmark::nsys
