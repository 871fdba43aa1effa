#include "bench/harness/trace.hpp"

#include "profiler/analyse.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace shardmark::bench {
namespace {

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// Elements and dtype a trace reader expects of a communication: those of its input.
void describe_operand(const Op& op, RankTrace::Interval& interval) {
  const Touches touched = touches(op);
  const auto& list = touched.reads.empty() ? touched.writes : touched.reads;
  if (list.empty()) return;
  interval.elements = list.front().numel();
  interval.dtype = name_of(list.front().dtype);
}

}  // namespace

RankTrace make_trace(int rank, const ProfiledIteration& iteration) {
  RankTrace trace{rank, iteration.window_us(), {}};
  std::map<std::uint32_t, const OpRecord*> ops;
  std::map<std::uint32_t, int> num_records;
  for (const OpRecord& record : iteration.ops) ops[record.seq] = &record;
  for (const KernelRecord& record : iteration.records) ++num_records[record.op_seq];
  for (const KernelRecord& record : iteration.records) {
    const OpRecord& op = *ops.at(record.op_seq);
    RankTrace::Interval interval;
    interval.name = record.name;
    interval.op = name_of(op.op);
    interval.path = *op.path;
    interval.lane = record.lane;
    interval.kind = record.kind;
    interval.op_seq = record.op_seq - iteration.ops.front().seq;
    interval.start_us = to_us(record.start_ns - iteration.begin_ns);
    interval.end_us = to_us(record.end_ns - iteration.begin_ns);
    // The tiles of an op, or the steps of a plan, share its work evenly.
    interval.flops = flops_of(op.op) / num_records[record.op_seq];
    interval.bytes_memory = work(op.op).bytes_memory / num_records[record.op_seq];
    interval.bytes_wire = bytes_wire_of(op.op) / num_records[record.op_seq];
    describe_operand(op.op, interval);
    if (const Group* group = group_of(op.op)) {
      interval.group = group->to_string();
      interval.group_size = group->size;
    }
    trace.intervals.push_back(std::move(interval));
  }
  return trace;
}

TimeSplit split_window(const ProfiledIteration& iteration) {
  const Occupancy used = occupancy(iteration.records, {iteration.begin_ns, iteration.end_ns});
  TimeSplit split{.window_us = iteration.window_us(),
                  .comp_us = to_us(used.comp_ns),
                  .comm_us = to_us(used.comm_ns),
                  .exposed_comm_us = to_us(used.exposed_comm_ns),
                  .overlapped_us = to_us(used.overlapped_ns),
                  .idle_us = to_us(iteration.idle_ns)};
  split.residual_us = split.window_us - split.comp_us - split.exposed_comm_us - split.idle_us;
  return split;
}

std::vector<KernelSummary> summarize_kernels(const std::vector<RankTrace>& traces) {
  std::vector<KernelSummary> summaries;
  std::map<std::tuple<int, std::string, std::string, std::string, int>, std::size_t> places;
  std::set<std::tuple<int, std::uint32_t>> counted;  // an op has a record per tile
  for (const RankTrace& trace : traces)
    for (const RankTrace::Interval& interval : trace.intervals) {
      const auto [place, is_new] = places.try_emplace(
          {trace.rank, interval.path, interval.op, interval.name, interval.group_size},
          summaries.size());
      if (is_new)
        summaries.push_back(
            {.rank = trace.rank,
             .op = interval.op,
             .name = interval.name,
             .path = interval.path,
             .kind = interval.kind == OpKind::communication ? "communication" : "compute",
             .lane = std::string{name_of(interval.lane)},
             .group_size = interval.group_size});
      KernelSummary& summary = summaries[place->second];
      if (counted.insert({trace.rank, interval.op_seq}).second) ++summary.count;
      summary.total_us += interval.end_us - interval.start_us;
      summary.flops += interval.flops;
      summary.bytes_memory += interval.bytes_memory;
      summary.bytes_wire += interval.bytes_wire;
    }
  return summaries;
}

Waiting waiting_of(const std::vector<RankTrace>& traces, std::size_t rank) {
  const auto duration = [](const RankTrace::Interval& interval) {
    return interval.end_us - interval.start_us;
  };
  // Ranks of a group communicate in one order, though a rank that sees less computes fewer ops in
  // between; so the n-th communication of a path is the same on all of them. One done by a plan has
  // an interval per step; what counts is their sum.
  using Durations = std::map<std::tuple<std::string, std::string, int>, double>;
  const auto durations = [&](const RankTrace& trace) {
    Durations sums;
    std::map<std::uint32_t, int> places;
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const RankTrace::Interval& interval : trace.intervals) {
      if (interval.kind != OpKind::communication) continue;
      const auto [place, is_new] = places.try_emplace(interval.op_seq, 0);
      if (is_new) place->second = counts[{interval.path, interval.group}]++;
      sums[{interval.path, interval.group, place->second}] += duration(interval);
    }
    return sums;
  };
  Durations shortest;
  for (const RankTrace& trace : traces)
    for (const auto& [key, sum] : durations(trace)) {
      const auto [place, is_new] = shortest.try_emplace(key, sum);
      if (!is_new) place->second = std::min(place->second, sum);
    }
  Waiting waiting;
  for (const auto& [key, sum] : durations(traces.at(rank))) {
    const double transfer_us = shortest.at(key);
    waiting.transfer_us += transfer_us;
    waiting.wait_us += sum - transfer_us;
  }
  return waiting;
}

double time_on(const RankTrace& trace, Lane lane) {
  double time_us = 0;
  for (const RankTrace::Interval& interval : trace.intervals)
    if (interval.lane == lane) time_us += interval.end_us - interval.start_us;
  return time_us;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTrace::Interval, name, op, path, dtype, lane, kind, op_seq,
                                   start_us, end_us, flops, bytes_memory, bytes_wire, group,
                                   group_size, elements)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTrace, rank, window_us, intervals)

std::string pack(const RankTrace& trace) {
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json(trace), bytes);
  return bytes;
}

RankTrace unpack(const std::string& bytes) {
  return nlohmann::json::from_cbor(bytes).get<RankTrace>();
}

}  // namespace shardmark::bench
