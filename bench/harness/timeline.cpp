#include "bench/harness/timeline.hpp"

#include "bench/harness/sweep.hpp"
#include "core/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

namespace shardmark::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Threads of a rank's process beyond its lanes.
constexpr std::size_t scope_thread = num_lanes, submit_thread = num_lanes + 1;
constexpr double gap_us = 1000;  ///< between rows

/// Whole nanoseconds, so that sums of the printed times stay exact.
double rounded(double time_us) { return std::round(time_us * 1e3) / 1e3; }

std::string path_of(const std::string& folder, int n) {
  return folder + (n == 1 ? "/trace.json" : message("/trace-", n, ".json"));
}
int unused_number(const std::string& folder) {
  int n = 1;
  while (std::filesystem::exists(path_of(folder, n) + TextArchive::suffix())) ++n;
  return n;
}

/// How NCCL and PyTorch name a collective, and how its tensors grow or shrink with the group.
struct Collective {
  std::string kernel, torch_name;
  bool grows{false}, shrinks{false};
};
// One overload per collective; a missing one does not compile.
Collective known_as(const AllReduce&) { return {"ncclDevKernel_AllReduce_Sum", "allreduce"}; }
Collective known_as(const AllGather&) {
  return {.kernel = "ncclDevKernel_AllGather", .torch_name = "_allgather_base", .grows = true};
}
Collective known_as(const ReduceScatter&) {
  return {.kernel = "ncclDevKernel_ReduceScatter_Sum",
          .torch_name = "_reduce_scatter_base",
          .shrinks = true};
}
// NCCL makes the other ones of sends and receives.
Collective known_as(const AllToAll&) { return {"ncclDevKernel_SendRecv", "all_to_all"}; }
Collective known_as(const AllToAllV&) { return {"ncclDevKernel_SendRecv", "all_to_allv"}; }
Collective known_as(const Broadcast&) { return {"ncclDevKernel_Broadcast", "broadcast"}; }
Collective known_as(const Reduce&) { return {"ncclDevKernel_Reduce_Sum", "reduce"}; }
Collective known_as(const Gather&) {
  return {.kernel = "ncclDevKernel_SendRecv", .torch_name = "gather", .grows = true};
}
Collective known_as(const Scatter&) {
  return {.kernel = "ncclDevKernel_SendRecv", .torch_name = "scatter", .shrinks = true};
}
Collective known_as(const SendRecv&) { return {"ncclDevKernel_SendRecv", "send"}; }
Collective known_as(const Barrier&) { return {"ncclDevKernel_AllReduce_Sum", "barrier"}; }

template <class... Os>
Collective find_collective(const std::string& op, const std::variant<Os...>&) {
  Collective found;
  ((name_of(Op{Os{}}) == op ? void(found = known_as(Os{})) : void()), ...);
  return found;
}
Collective collective_of(const std::string& op) { return find_collective(op, CommunicationOp{}); }

/// "tp[2,3]" -> "[2, 3]".
std::string ranks_of(const std::string& group) {
  std::string ranks;
  for (const char c : group.substr(std::min(group.find('['), group.size())))
    ranks += c == ',' ? std::string{", "} : std::string{c};
  return ranks;
}

std::string kineto_dtype(const std::string& dtype) {
  static const std::map<std::string, std::string> names{{"f32", "Float"},     {"f64", "Double"},
                                                        {"bf16", "BFloat16"}, {"f16", "Half"},
                                                        {"i32", "Int"},       {"i8", "Char"}};
  const auto found = names.find(dtype);
  return found == names.end() ? "Float" : found->second;
}

Json communication_args(const RankTrace::Interval& interval) {
  const std::int64_t in = interval.elements;
  const std::int64_t size = std::max(1, interval.group_size);
  const Collective collective = collective_of(interval.op);
  const std::int64_t out = collective.grows ? in * size : collective.shrinks ? in / size : in;
  return {{"Collective name", collective.torch_name},
          {"In msg nelems", in},
          {"Out msg nelems", out},
          {"Group size", interval.group_size},
          {"dtype", kineto_dtype(interval.dtype)},
          {"Process Group Name", interval.group},
          {"Process Group Description", interval.group.substr(0, interval.group.find('['))},
          {"Process Group Ranks", ranks_of(interval.group)},
          {"bytes_wire", interval.bytes_wire}};
}

/// The first `depth` names of a scope path; empty if it is not that deep.
std::string prefix(const std::string& path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) {
    if (end == std::string::npos || (i > 0 && end >= path.size())) return {};
    end = path.find('/', i == 0 ? 0 : end + 1);
  }
  return path.substr(0, end);
}

}  // namespace

Timeline::Timeline(const std::string& folder, std::string transport, int world_size)
    : Timeline{folder, unused_number(folder), std::move(transport), world_size} {}

Timeline::Timeline(const std::string& folder, int number, std::string transport, int world_size)
    : transport_{std::move(transport)},
      archive_{path_of(folder, number)},
      first_number_{std::int64_t{number - 1} << 32} {
  // With the spaces that Kineto writes: some tools look for the rank by text.
  archive_.write(
      message("{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"distributedInfo\": ",
              "{\"backend\": \"", transport_, "\", \"rank\": 0, \"world_size\": ", world_size,
              "}, \"traceEvents\": [\n"));
}

void Timeline::add(const Outcome& row) {
  if (row.traces.empty()) return;
  const std::string title = message("row ", num_rows_, ": ", describe(row.result.config));
  double longest_us = 0;
  for (const RankTrace& trace : row.traces) {
    const Place place{trace.rank, begin_us_, next_correlation_, number_collectives(trace)};
    add_window(trace, place, title);
    add_scopes(trace, place);
    add_submissions(trace, place);
    for (const RankTrace::Interval& interval : trace.intervals) add_kernel(interval, place);
    std::uint32_t last_seq = 0;
    for (const RankTrace::Interval& interval : trace.intervals)
      last_seq = std::max(last_seq, interval.op_seq);
    next_correlation_ += last_seq + 1;
    longest_us = std::max(longest_us, trace.window_us);
  }
  begin_us_ = rounded(begin_us_ + longest_us + gap_us);
  ++num_rows_;
}

void Timeline::finish(bool complete) {
  archive_.write(message("\n], \"complete\": ", complete ? "true" : "false", "}\n"));
  archive_.close();
}

std::map<std::uint32_t, std::int64_t> Timeline::number_collectives(const RankTrace& trace) {
  std::map<std::uint32_t, std::string> groups;
  for (const RankTrace::Interval& interval : trace.intervals)
    if (interval.kind == OpKind::communication && interval.op != name_of(Op{SendRecv{}}))
      groups[interval.op_seq] = interval.group;
  std::map<std::uint32_t, std::int64_t> numbers;
  for (const auto& [op_seq, group] : groups)
    numbers[op_seq] = first_number_ + num_collectives_[{trace.rank, group}]++;
  return numbers;
}

template <class Event>
void Timeline::write_event(const Event& event) {
  archive_.write((is_first_ ? "" : ",\n") + event.dump());
  is_first_ = false;
}

void Timeline::name_thread(int rank, std::size_t thread, const std::string& name) {
  const auto metadata = [&](const char* kind, const char* key, const Json& value) {
    write_event(Json{
        {"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", thread}, {"args", {{key, value}}}});
  };
  if (std::ranges::none_of(named_, [&](const auto& known) { return known.first == rank; })) {
    metadata("process_name", "name", message("rank ", rank));
    metadata("process_labels", "labels", message("rank ", rank, " (", transport_, ")"));
    metadata("process_sort_index", "sort_index", rank);
  }
  if (!named_.emplace(rank, thread).second) return;
  metadata("thread_name", "name", name);
  // Scopes on top, lanes in their order, submissions last.
  metadata("thread_sort_index", "sort_index", thread == scope_thread ? 0 : thread + 1);
}

void Timeline::add_window(const RankTrace& trace, const Place& place, const std::string& title) {
  name_thread(place.rank, scope_thread, "scopes");
  for (const std::string& name : {message("ProfilerStep#", num_rows_), title})
    write_event(Json{{"ph", "X"},
                     {"cat", "user_annotation"},
                     {"name", name},
                     {"pid", place.rank},
                     {"tid", scope_thread},
                     {"ts", place.begin_us},
                     {"dur", rounded(trace.window_us)}});
}

void Timeline::add_scopes(const RankTrace& trace, const Place& place) {
  std::vector<const RankTrace::Interval*> compute;
  for (const RankTrace::Interval& interval : trace.intervals)
    if (interval.lane == Lane::compute) compute.push_back(&interval);
  std::ranges::sort(compute, {}, &RankTrace::Interval::start_us);
  constexpr int most_depth = 16;
  for (int depth = 1; depth <= most_depth; ++depth) {
    bool any = false;
    for (std::size_t first = 0, next = 0; first < compute.size(); first = next) {
      const std::string scope = prefix(compute[first]->path, depth);
      while (next < compute.size() && prefix(compute[next]->path, depth) == scope) ++next;
      if (scope.empty()) continue;
      any = true;
      const double start_us = rounded(compute[first]->start_us);
      const double end_us = rounded(compute[next - 1]->end_us);
      write_event(Json{{"ph", "X"},
                       {"cat", "user_annotation"},
                       {"name", scope},
                       {"pid", place.rank},
                       {"tid", scope_thread},
                       {"ts", rounded(place.begin_us + start_us)},
                       {"dur", rounded(end_us - start_us)}});
    }
    if (!any) return;
  }
}

void Timeline::add_submissions(const RankTrace& trace, const Place& place) {
  // All ops are handed over before the first one runs; tools that pair kernels with their launch
  // look for an event of the same correlation.
  name_thread(place.rank, submit_thread, "submit");
  std::set<std::uint32_t> seen;
  for (const RankTrace::Interval& interval : trace.intervals)
    if (seen.insert(interval.op_seq).second)
      write_event(Json{{"ph", "X"},
                       {"cat", "cuda_runtime"},
                       {"name", "submit"},
                       {"pid", place.rank},
                       {"tid", submit_thread},
                       {"ts", place.begin_us},
                       {"dur", 0},
                       {"args", {{"correlation", place.first_correlation + interval.op_seq}}}});
}

void Timeline::add_kernel(const RankTrace::Interval& interval, const Place& place) {
  const std::size_t lane = index_of(interval.lane);
  name_thread(place.rank, lane, message(name_of(interval.lane), " lane"));
  const std::int64_t correlation = place.first_correlation + interval.op_seq;
  Json args{{"stream", lane},
            {"device", place.rank},
            {"correlation", correlation},
            {"External id", correlation},
            {"op", interval.op},
            {"path", interval.path},
            {"flops", interval.flops},
            {"bytes", interval.bytes_memory}};
  std::string name = interval.name;
  if (interval.kind == OpKind::communication) {
    name = message(collective_of(interval.op).kernel, '_', interval.dtype, " (shardmark ",
                   transport_, ")");
    args.update(communication_args(interval));
    const auto number = place.collectives.find(interval.op_seq);
    if (number != place.collectives.end()) args["Seq"] = number->second;
  }
  write_event(Json{{"ph", "X"},
                   {"cat", "kernel"},
                   {"name", name},
                   {"pid", place.rank},
                   {"tid", lane},
                   {"ts", rounded(place.begin_us + interval.start_us)},
                   {"dur", rounded(interval.end_us - interval.start_us)},
                   {"args", std::move(args)}});
}

}  // namespace shardmark::bench
