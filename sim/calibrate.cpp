#include "sim/calibrate.hpp"

#include "core/error.hpp"
#include "core/ops.hpp"
#include "sim/kernel_table_internal.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <tuple>

namespace shardmark {
namespace {

constexpr double same_size = 1.05;  ///< sizes up to this ratio apart are one point of a table
/// Sizes of messages must differ this much to tell a latency from the noise of a bandwidth.
constexpr double least_spread = 16;

/// A call as the machine sees it: FLOPs or bytes, and what it took.
struct Sample {
  double size{0}, time_us{0};
};
/// A communication: latencies on its way, bytes across the link.
struct Transfer {
  double steps{0}, bytes{0}, time_us{0};
};

/// Each end of a pipeline's message has a place of its own, and may wait there for the other or be
/// polled from compute. So all of one size count as one place, of which the fastest is taken.
std::string place_of(const KernelRow& row) {
  return row.is_pipeline_message ? message("pipeline ", row.bytes_wire) : row.place;
}

/// Of the rows of one place, one per rank, the slowest or the fastest.
std::map<std::string, KernelRow> one_per_place(const std::vector<KernelRow>& rows,
                                               const std::string& kind, bool slowest) {
  std::map<std::string, KernelRow> chosen;
  for (const KernelRow& row : rows) {
    if (row.kind != kind || row.time_us <= 0) continue;
    const auto [place, is_new] = chosen.try_emplace(place_of(row), row);
    if (!is_new && (row.time_us > place->second.time_us) == slowest) place->second = row;
  }
  return chosen;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// One point per size; FLOPs per us are MFLOP/s, bytes per us MB/s: /1e6 and /1e3.
std::vector<Rates::Point> points_of(std::vector<Sample> samples, Rates::Of of) {
  std::ranges::sort(samples, {}, &Sample::size);
  std::vector<Rates::Point> points;
  for (std::size_t first = 0, next = 0; first < samples.size(); first = next) {
    std::vector<double> sizes, rates;
    for (; next < samples.size() && samples[next].size <= same_size * samples[first].size; ++next) {
      sizes.push_back(samples[next].size);
      rates.push_back(samples[next].size / samples[next].time_us /
                      (of == Rates::Of::flops ? 1e6 : 1e3));
    }
    points.push_back({median(sizes), median(rates)});
  }
  return points;
}

void add_rates(const std::vector<KernelRow>& rows, const std::string& source, Machine& machine) {
  std::map<std::tuple<std::string, std::string, Rates::Of>, std::vector<Sample>> samples;
  for (const auto& [place, row] : one_per_place(rows, "compute", true)) {
    if (row.time_us <= 0 || row.flops + row.bytes_memory <= 0) continue;
    const Rates::Of of = row.flops > 0 ? Rates::Of::flops : Rates::Of::bytes;
    samples[{row.op, row.dtype, of}].push_back(
        {row.flops > 0 ? row.flops : row.bytes_memory, row.time_us});
  }
  if (samples.empty())
    throw InputError{
        "kernels.csv has no compute op with a time; calibrate from a run with rows that are ok"};
  for (auto& [key, calls] : samples) {
    Rates table{.op = std::get<0>(key), .dtype = std::get<1>(key), .of = std::get<2>(key)};
    table.points = points_of(std::move(calls), table.of);
    table.source = source;
    const double best = std::ranges::max(table.points, {}, &Rates::Point::rate).rate;
    Fact& ceiling =
        table.of == Rates::Of::flops ? machine.peaks_tflops[table.dtype] : machine.memory_GBps;
    if (best > ceiling.value) ceiling = {best, "highest rate of an op, " + source};
    machine.rates.push_back(std::move(table));
  }
}

/// Steps x latency: those of the ring, see cost_comm.hpp.
double steps_of(const std::string& op, int group_size) {
  if (op == "all_reduce") return 2 * (group_size - 1);
  if (op == "send_recv") return 1;
  if (op == "barrier") return std::bit_width(static_cast<unsigned>(group_size - 1));
  return group_size - 1;
}

/// Least squares on relative errors; a term that would be negative is left out.
Link fitted(const std::vector<Transfer>& transfers, const std::string& source) {
  double ss = 0, sb = 0, bb = 0, s1 = 0, b1 = 0;  // sums of products, each over time squared
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  for (const Transfer& t : transfers) {
    smallest = std::min(smallest, t.bytes / t.steps);
    largest = std::max(largest, t.bytes / t.steps);
    const double steps = t.steps / t.time_us, megabytes = t.bytes / 1e6 / t.time_us;
    ss += steps * steps;
    sb += steps * megabytes;
    bb += megabytes * megabytes;
    s1 += steps;
    b1 += megabytes;
  }
  double latency_us = 0, us_per_megabyte = bb > 0 ? b1 / bb : 0;
  if (largest >= least_spread * smallest && largest > 0) {
    const double determinant = ss * bb - sb * sb;
    latency_us = (s1 * bb - b1 * sb) / determinant;
    us_per_megabyte = (ss * b1 - sb * s1) / determinant;
  }
  if (latency_us < 0) {
    latency_us = 0;
    us_per_megabyte = b1 / bb;
  }
  if (us_per_megabyte <= 0) {  // latency alone; the bandwidth is too high to tell
    latency_us = s1 / ss;
    us_per_megabyte = 1e-3;
  }
  return {{latency_us, source}, {1e3 / us_per_megabyte, source}};
}

void add_links(const std::vector<KernelRow>& rows, const std::string& source, Machine& machine) {
  std::map<std::string, std::vector<Transfer>> transfers;
  std::vector<Transfer> all;
  for (const auto& [place, row] : one_per_place(rows, "communication", false)) {
    // Beside compute, a time is as long as the compute it was polled from.
    if (row.group_size < 2 || row.time_us <= 0 || row.overlaps) continue;
    transfers[row.op].push_back({steps_of(row.op, row.group_size), row.bytes_wire, row.time_us});
    all.push_back(transfers[row.op].back());
  }
  if (all.empty())
    throw InputError{
        "kernels.csv has no communication between ranks without --overlap; calibrate from a run on "
        "two ranks or more with --tp 2 (or --cp 2, or --pp 2) among its degrees and --overlap off"};
  machine.inside.link = fitted(all, "all communication, " + source);
  for (const auto& [op, of_op] : transfers) machine.inside.collectives[op] = fitted(of_op, source);
}

/// What run.json says about a run.
struct Run {
  std::string source, cpu;
  int num_ranks{1};
  double memory_bytes{0};  ///< of the host; 0 in files that do not say
};

Run parse_run(const std::string& run_json) {
  try {
    const nlohmann::json run = nlohmann::json::parse(run_json);
    if (run.contains("predicted_for"))
      throw InputError{"the run is itself a prediction; calibrate from one that was measured"};
    if (run.at("oversubscribed").get<bool>())
      throw InputError{
          "ranks shared cores in this run (run.json: oversubscribed), so its times say "
          "nothing about one rank; calibrate from one with a core per rank"};
    const auto& ranks = run.at("ranks");
    const auto host = [](const nlohmann::json& rank) { return rank.at("host").get<std::string>(); };
    for (const auto& rank : ranks)
      if (host(rank) != host(ranks.front()))
        throw InputError{message("the run has ranks on ", host(ranks.front()), " and ", host(rank),
                                 ", so its links are of two kinds; calibrate from a run on one ",
                                 "host")};
    return {message("measured by ", run.at("program").get<std::string>(), " run ",
                    run.at("run_id").get<std::string>()),
            run.at("machine").at("cpu").get<std::string>(), static_cast<int>(ranks.size()),
            run.at("machine").value("memory_bytes", 0.0)};
  } catch (const nlohmann::json::exception& error) {
    throw InputError{message("run.json is not that of a run: ", error.what())};
  }
}

}  // namespace

Machine calibrate(const std::string& name, const std::string& kernels_csv,
                  const std::string& run_json) {
  const Run run = parse_run(run_json);
  const std::vector<KernelRow> rows = parse_kernels(kernels_csv);
  Machine machine;
  machine.name = name;
  machine.about = message("calibrated on ", run.cpu, ", ", run.source);
  add_rates(rows, run.source, machine);
  if (machine.memory_GBps.value <= 0)
    throw InputError{
        "kernels.csv has no op without FLOPs, so no memory bandwidth; calibrate from rows of whole "
        "blocks (shardmark-tp --block block, shardmark-cp --scope block, shardmark-pp)"};
  if (machine.peaks_tflops.empty())
    throw InputError{
        "kernels.csv has no op with FLOPs, so no peak; calibrate from rows of whole blocks "
        "(shardmark-tp --block block, shardmark-cp --scope block, shardmark-pp)"};
  add_links(rows, run.source, machine);
  const std::string contained = "contained in the measured times";
  machine.launch_overhead_us = {0, contained};
  machine.collective_overhead_us = {0, contained};
  machine.ranks_per_node = {static_cast<double>(run.num_ranks), "the run's ranks"};
  if (run.memory_bytes > 0)
    machine.memory_GB = {run.memory_bytes / 1e9 / run.num_ranks,
                         "an equal share of the host's memory, " + run.source};
  machine.overlap = {0, "on one host a rank's own core moves its bytes"};
  machine.algorithms = {CommAlgorithm::ring};
  return machine;
}

}  // namespace shardmark
