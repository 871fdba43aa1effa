#include "bench/harness/predict.hpp"

#include "bench/harness/trace.hpp"
#include "bench/harness/work.hpp"
#include "sim/cost_comm.hpp"
#include "sim/predict.hpp"

#include <algorithm>
#include <array>

namespace shardmark::bench {
namespace {

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// The programs of a configuration, one for each class of ranks.
struct Programs {
  Folding folding;
  std::vector<Recording> recordings{};         ///< without `ops`, but with what these point to
  std::vector<std::vector<OpRecord>> lists{};  ///< their `ops`
  std::vector<RankWork> work{};

  [[nodiscard]] std::size_t class_of(std::size_t rank) const {
    return static_cast<std::size_t>(folding.class_of[rank]);
  }
};

/// Throws InputError when the machine has too few ranks.
void check_size(const Parallel& parallel, const Machine& machine) {
  if (machine.has_between || parallel.num_ranks() <= machine.ranks_per_node.value) return;
  throw InputError{message("machine ", machine.name, " is one node of ",
                           machine.ranks_per_node.value, " ranks, and this takes ",
                           parallel.num_ranks(),
                           "; lower the degrees, or describe the links between its nodes "
                           "(\"between\") in the machine file")};
}

Programs record(const Case& config, const Machine& machine, int num_threads) {
  const Parallel& parallel = config.layer.parallel;
  constexpr std::array alike{Axis::dp, Axis::tp};
  const Mesh mesh{{.dp = parallel.dp.size,
                   .pp = parallel.pp.size,
                   .cp = parallel.context.cp.size,
                   .tp = parallel.tp.size}};
  Programs programs{fold(mesh, static_cast<int>(machine.ranks_per_node.value), alike)};
  LayerConfig layer = config.layer;
  for (const int rank : programs.folding.representatives) {
    layer.parallel = parallel.at(0, rank);
    Recording recording = record_program(layer, config.phase, num_threads);
    programs.work.push_back(work_of(recording, layer));
    programs.lists.push_back(std::move(recording.ops));
    programs.recordings.push_back(std::move(recording));
  }
  return programs;
}

/// As FilterBackend does it for the baselines of a measured row.
std::vector<OpRecord> without(OpKind kind, const std::vector<OpRecord>& list) {
  std::vector<OpRecord> kept;
  std::ranges::copy_if(list, std::back_inserter(kept),
                       [&](const OpRecord& record) { return kind_of(record.op) != kind; });
  return kept;
}

void predict_baselines(const Programs& programs, const Machine& machine, Result& result) {
  if (result.num_ranks() == 1) return;
  std::vector<std::vector<OpRecord>> communications;
  for (const std::vector<OpRecord>& list : programs.lists) {
    communications.push_back(without(OpKind::compute, list));
    const std::array computes{without(OpKind::communication, list)};
    const Prediction alone = predict(computes, machine);
    result.compute_only_us = std::max(result.compute_only_us, alone.window_us());
    result.comp_alone_us = std::max(result.comp_alone_us, to_us(alone.time_of(0).comp_ns));
  }
  const Prediction alone = predict(communications, machine, programs.folding);
  result.communication_only_us = alone.window_us();
  for (const RankTime& time : alone.replay.times)
    result.comm_alone_us = std::max(result.comm_alone_us, to_us(time.comm_ns));
}

void fill_work(const Case& config, const Programs& programs, Result& result) {
  for (const Recording& recording : programs.recordings)
    result.mem_peak_bytes =
        std::max(result.mem_peak_bytes, recording.tensor_bytes + recording.workspace_bytes);
  for (std::size_t rank = 0; rank < programs.folding.num_ranks(); ++rank)
    result.work.push_back(programs.work[programs.class_of(rank)]);
  result.mem_predicted_bytes = result.mem_peak_bytes;
  result.flops_observed = mean_flops_done(result.work);
  const ModelFlops flops = model_flops(config.layer, config.phase);
  result.flops_model_causal = flops.causal;
  result.flops_model_full = flops.full;
  LayerConfig layer = config.layer;
  const auto busiest = std::ranges::max_element(programs.work, {}, &RankWork::bytes_plan);
  const auto place = static_cast<std::size_t>(busiest - programs.work.begin());
  layer.parallel = layer.parallel.at(0, programs.folding.representatives[place]);
  result.bytes_observed = busiest->bytes_plan;
  result.volume = communication_volume(layer, config.phase);
  result.bytes_analytic = total_bytes(result.volume);
}

/// The bubble, of the pipeline that begins at rank 0, whose ranks are the lowest of their classes.
/// The others' are taken to be equal.
void fill_pipeline(const LayerConfig& layer, const Programs& programs, const Replay& replay,
                   Result& result) {
  if (!layer.is_pipeline()) return;
  const Group pipeline = layer.parallel.at(0, 0).pp;
  std::vector<std::vector<OpRecord>> lists;
  std::vector<RankIteration> ranks;
  for (int member = 0; member < pipeline.size; ++member) {
    const int rank = pipeline.world_rank(member);
    const std::size_t own = programs.class_of(static_cast<std::size_t>(rank));
    SHARDMARK_CHECK(programs.folding.representatives[own] == rank, "rank ", rank, " is folded");
    lists.push_back(programs.lists[own]);
    ranks.push_back({.begin_ns = 0,
                     .end_ns = replay.window_ns,
                     .idle_ns = replay.times[own].idle_ns,
                     .records = kernel_records(programs.lists[own], replay.ops[own])});
  }
  PipelineAnalysis analysis{std::move(lists), layer.pipeline.schedule->num_stages};
  analysis.add_predicted(ranks);
  PipelineTimes times = analysis.result();
  const PipelineTimes of_places = times;
  times.ranks.clear();
  times.peak_in_flight.clear();
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(layer.parallel.num_ranks()); ++rank) {
    const std::size_t place = pipeline_place(layer.parallel, rank);
    times.ranks.push_back(of_places.ranks[place]);
    times.peak_in_flight.push_back(of_places.peak_in_flight[place]);
  }
  result.pipeline = std::move(times);
}

/// Takes the lists: each becomes the trace of its class.
void fill_times(Programs& programs, const Replay& replay, Outcome& row) {
  Result& result = row.result;
  std::vector<TimeSplit> splits;
  for (std::size_t i = 0; i < programs.lists.size(); ++i) {
    ProfiledIteration iteration;
    iteration.end_ns = replay.window_ns;
    iteration.idle_ns = replay.times[i].idle_ns;
    iteration.records = kernel_records(programs.lists[i], replay.ops[i]);
    iteration.ops = std::move(programs.lists[i]);
    splits.push_back(split_window(iteration));
    row.traces.push_back(make_trace(programs.folding.representatives[i], iteration));
  }
  for (std::size_t rank = 0; rank < programs.folding.num_ranks(); ++rank)
    result.splits.push_back(splits[programs.class_of(rank)]);
  const auto worst = static_cast<std::size_t>(
      std::ranges::max_element(splits, {}, &TimeSplit::exposed_comm_us) - splits.begin());
  result.time.p50 = to_us(replay.window_ns);
  result.split = splits[worst];
  result.exchange_us = time_on(row.traces[worst], Lane::cp);
  result.transfer_us = to_us(replay.times[worst].transfer_ns);
  result.wait_us = to_us(replay.times[worst].wait_ns);
  for (const TimeSplit& split : splits) {
    result.comp_together_us = std::max(result.comp_together_us, split.comp_us);
    result.comm_together_us = std::max(result.comm_together_us, split.comm_us);
  }
  result.kernels = summarize_kernels(row.traces);
}

Peak peak_of(const Machine& machine, DType dtype, double user_tflops) {
  if (user_tflops > 0) return {user_tflops, user_tflops, "user"};
  const double tflops = machine.peak_tflops(dtype);
  return {tflops, tflops, "machine:" + machine.name};
}

/// What a communication of rank 0 would take without its bytes, on average.
double latency_us(Machine machine, const std::vector<OpRecord>& list) {
  for (Network* network : {&machine.inside, &machine.between}) {
    constexpr double unlimited = 1e12;
    network->link.bandwidth_GBps.value = unlimited;
    for (auto& [op, link] : network->collectives) link.bandwidth_GBps.value = unlimited;
  }
  double sum_us = 0;
  int count = 0;
  for (const OpRecord& record : list)
    if (const Group* group = group_of(record.op); group != nullptr && group->size > 1) {
      sum_us += communication_us(machine, record.op);
      ++count;
    }
  return count > 0 ? sum_us / count : 0;
}

}  // namespace

Outcome predict_row(const Case& config, const Machine& machine, const RunnerOptions& options) {
  Outcome row;
  row.result.config = config;
  row.result.world_size = config.layer.parallel.num_ranks();
  row.result.threads_per_rank = options.threads_per_rank;
  row.result.check_mode = CheckMode::off;
  Outcome unfinished = row;
  try {
    check_size(config.layer.parallel, machine);
    Result& result = row.result;
    result.peak = peak_of(machine, config.layer.dtype, options.peak_tflops);
    Programs programs = record(config, machine, options.threads_per_rank);
    fill_work(config, programs, result);
    predict_baselines(programs, machine, result);
    // A copy, which measured rows are compared with, moves each byte twice.
    const VerdictInputs inputs{latency_us(machine, programs.lists.front()),
                               machine.memory_GBps.value / 2,
                               machine.memory_GB ? 1e9 * machine.memory_GB->value : 0};
    const Replay replay = predict(programs.lists, machine, programs.folding).replay;
    fill_pipeline(config.layer, programs, replay, result);
    fill_times(programs, replay, row);
    if (config.layer.inference) result.inference = inference_times(config.layer, row.traces);
    const Verdict verdict = judge(result, options.thresholds, inputs);
    result.verdict = verdict.name;
    result.verdict_reason = verdict.reason;
    return row;
  } catch (const InputError& error) {
    unfinished.result.status = Status::skipped;
    unfinished.result.reason = error.what();
    return unfinished;
  }
}

}  // namespace shardmark::bench
