#include "bench/harness/verdict.hpp"

#include "bench/harness/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

namespace shardmark::bench {
namespace {

/// Of every rank; a pipeline's are medians over iterations, others' of the one that stands for all.
std::vector<double> compute_times_us(const Result& result) {
  std::vector<double> times_us;
  if (result.pipeline)
    for (const PipelineSplit& rank : result.pipeline->ranks) times_us.push_back(rank.compute_us());
  else
    for (const TimeSplit& rank : result.splits) times_us.push_back(rank.comp_us);
  return times_us;
}

double window_us(const Result& result) {
  const double us =
      result.pipeline ? result.pipeline->measured.mean.window_us : result.split.window_us;
  return std::max(us, 1e-9);
}

double imbalance_pct(const Result& result) {
  return bench::imbalance_pct(compute_times_us(result), window_us(result));
}

/// Of a rank at `place` in its pipeline that computes longer than those of other stages. Begins
/// with "; ".
std::string stage_remedy(const Result& result, std::size_t place) {
  const LayerConfig& layer = result.config.layer;
  std::vector<int> stages{static_cast<int>(place)};
  if (layer.is_pipeline()) stages = layer.pipeline.schedule->stages_of(static_cast<int>(place));
  std::int64_t blocks = 0;
  for (const int stage : stages)
    blocks += layer.pipeline.blocks.at(static_cast<std::size_t>(stage));
  if (blocks <= static_cast<std::int64_t>(stages.size()))
    return fmt::format("; it has {} block{}, and a stage needs one; try a smaller --pp", blocks,
                       blocks == 1 ? "" : "s");
  if (result.config.balance == "measured") return "; --balance measured chose its blocks";
  const bool can_measure = result.time.samples > 0 && !layer.inference;
  return result.config.balance == "count" && can_measure
             ? "; try --balance measured, or --split with fewer blocks for it"
             : "; try --split with fewer blocks for it";
}

/// What can be done about it, beginning with "; ", or nothing. A prediction has no samples.
std::string remedy(const Result& result, const VerdictThresholds& limits, std::size_t slowest,
                   std::size_t fastest) {
  if (result.oversubscribed)
    return "; there are more ranks than cores, so they take turns; start fewer";
  const Parallel& parallel = result.config.layer.parallel;
  if (parallel.pp.size > 1) {
    const std::size_t place = pipeline_place(parallel, slowest);
    if (place != pipeline_place(parallel, fastest)) return stage_remedy(result, place);
  } else if (result.balance() > limits.imbalance_ratio) {
    return parallel.context.order == TokenOrder::contiguous
               ? "; the masks give it more to do; try --order zigzag or striped"
               : "; the masks give it more to do";
  }
  return result.time.samples > 0 ? "; look for other load on its core, or pin the ranks" : "";
}

std::optional<Finding> imbalanced(const Result& result, const VerdictThresholds& limits) {
  const std::vector<double> times_us = compute_times_us(result);
  std::vector<int> numbers(times_us.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto what_helps = [&](std::size_t slowest, std::size_t fastest) {
    return remedy(result, limits, slowest, fastest);
  };
  return find_imbalance({times_us, numbers, what_helps}, window_us(result), limits);
}

/// Of inference over several stages: the bubble is whatever is no work of a stage.
std::optional<Finding> stages_wait(const Result& result, const VerdictThresholds& limits) {
  const LayerConfig& layer = result.config.layer;
  const double idle_pct = result.inference ? 100 * (1 - result.inference->on_stage) : 0;
  if (layer.parallel.pp.size == 1 || idle_pct <= limits.bubble_pct) return std::nullopt;
  const int requests = layer.inference->requests, stages = layer.parallel.pp.size;
  return Finding{
      {"bubble_bound", fmt::format("stages have nothing to do for {:.1f} % of the window (limit "
                                   "{:g} %): {} request{} for {} stages; try --microbatches {}, or "
                                   "tp instead of pp",
                                   idle_pct, limits.bubble_pct, requests, requests == 1 ? "" : "s",
                                   stages, std::max(2 * requests, stages))},
      idle_pct - imbalance_pct(result)};
}

/// Its cost is what equal compute times would leave of it.
std::optional<Finding> bubble_bound(const Result& result, const VerdictThresholds& limits) {
  if (result.config.layer.inference) return stages_wait(result, limits);
  if (!result.pipeline) return std::nullopt;
  const Bubble& bubble = result.pipeline->measured;
  if (100 * bubble.of_total <= limits.bubble_pct) return std::nullopt;
  return Finding{
      {"bubble_bound",
       fmt::format("the bubble is {:.1f} % of the window (limit {:g} %; {:.1f} % by theory with "
                   "the same op times); try --microbatches {} (about {:.1f} %), or a schedule with "
                   "a smaller bubble",
                   100 * bubble.of_total, limits.bubble_pct,
                   100 * result.pipeline->replayed.of_total, 2 * result.config.layer.pipeline.micro,
                   100 * bubble.of_total / (2 - bubble.of_total))},
      100 * bubble.of_total - imbalance_pct(result)};
}

/// In percent of the window. Of a pipeline only what is no waiting: that is its bubble.
double exposed_pct(const Result& result) {
  if (result.inference && result.config.layer.parallel.pp.size > 1)
    return 100 * result.inference->in_collectives;
  if (!result.pipeline) return result.exposed_comm_pct();
  const PipelineSplit& mean = result.pipeline->measured.mean;
  return 100 * (mean.collective_us + mean.exposed_transfer_us) / window_us(result);
}
/// What that is: other words than the column's, which has the waiting of a pipeline in it.
std::string_view exposed_name(const Result& result) {
  if (result.inference && result.config.layer.parallel.pp.size > 1)
    return "communication of tp that hides behind no kernel";
  return result.pipeline ? "communication that hides behind no kernel, without waiting for other "
                           "stages,"
                         : "exposed communication";
}

/// The lane of collectives that took longest on all ranks together; "" where there are none.
std::string busiest_lane(const Result& result) {
  std::map<std::string, double> times_us;
  for (const KernelSummary& kernel : result.kernels)
    if (kernel.kind == "communication" && !kernel.lane.starts_with("pp"))
      times_us[kernel.lane] += kernel.total_us;
  const auto longest =
      std::ranges::max_element(times_us, {}, &std::map<std::string, double>::value_type::second);
  return longest == times_us.end() ? "" : longest->first;
}

std::string pipeline_advice(const Result& result) {
  const PipelineSplit& mean = result.pipeline->measured.mean;
  if (mean.exposed_transfer_us >= mean.collective_us)
    return result.config.layer.pipeline.chunks > 1
               ? "try a larger hidden size, or a schedule with fewer --chunks"
               : "try a larger hidden size";
  const std::string lane = busiest_lane(result);
  if (lane == "dp")
    return "most is of dp: try more --microbatches: gradients are summed once for "
           "all";
  if (lane == "tp")
    return fmt::format("most is of tp: try --tp {} with more --pp, or a larger hidden size",
                       std::max(1, result.config.layer.parallel.tp.size / 2));
  return "try a larger hidden size";
}

std::string advice(const Result& result) {
  const Parallel& parallel = result.config.layer.parallel;
  if (result.pipeline) return pipeline_advice(result);
  if (result.config.layer.inference)
    return "try pp instead of tp, a larger --batch or a larger hidden size";
  if (!parallel.overlap) return "try --overlap on";
  if (parallel.context.is_split())
    return "try a longer sequence, another --kind, or fewer cp (--advise says which)";
  return fmt::format("try tp {} with more data parallelism, a larger batch or a larger hidden size",
                     std::max(1, parallel.tp.size / 2));
}

/// Its cost leaves out what the rank with the most of it waits for the one that computes longest.
std::optional<Finding> communication_bound(const Result& result, const VerdictThresholds& limits) {
  double waits_pct = 0;
  if (result.config.layer.parallel.pp.size == 1 && !result.pipeline && !result.splits.empty())
    waits_pct =
        100 *
        (std::ranges::max(result.splits, {}, &TimeSplit::comp_us).comp_us - result.split.comp_us) /
        window_us(result);
  const double share_pct = exposed_pct(result);
  return find_communication(exposed_name(result), share_pct, share_pct - waits_pct, advice(result),
                            limits);
}

/// What one rank communicates in an iteration.
struct Communications {
  int calls{0};
  double bytes{0};
};
/// Of the rank that sends most, the first of equal ones.
Communications busiest_communications(const Result& result) {
  std::map<int, Communications> by_rank;
  for (const KernelSummary& kernel : result.kernels)
    if (kernel.kind == "communication") {
      by_rank[kernel.rank].calls += kernel.count;
      by_rank[kernel.rank].bytes += kernel.bytes_wire;
    }
  Communications busiest;
  for (const auto& [rank, own] : by_rank)
    if (busiest.calls == 0 || own.bytes > busiest.bytes) busiest = own;
  return busiest;
}

/// Counts only where communication matters at all: below a tenth of the window a latency-bound call
/// limits nothing.
std::optional<Verdict> latency_bound(const Result& result, const VerdictInputs& machine) {
  constexpr double worth_a_look_pct = 10;
  const auto [calls, bytes] = busiest_communications(result);
  if (calls == 0 || result.communication_only_us <= 0 || exposed_pct(result) < worth_a_look_pct)
    return std::nullopt;
  const double per_call_us = result.communication_only_us / calls;
  if (machine.latency_us < per_call_us / 2) return std::nullopt;
  return Verdict{"latency_bound",
                 fmt::format("a communication takes {:.1f} us of which {:.1f} us are latency "
                             "({:.0f} bytes a call); use fewer chunks or more tokens per call",
                             per_call_us, machine.latency_us, bytes / calls)};
}

std::optional<Verdict> memory_bound(const Result& result, const VerdictThresholds& limits,
                                    const VerdictInputs& machine) {
  double bytes = 0, time_us = 0, flops = 0;
  for (const KernelSummary& kernel : result.kernels)
    if (kernel.rank == 0 && kernel.kind == "compute") {
      bytes += kernel.bytes_memory;
      flops += kernel.flops;
      time_us += kernel.total_us;
    }
  if (time_us <= 0 || machine.copy_bandwidth_GBps <= 0 || result.peak.tflops <= 0)
    return std::nullopt;
  // A copy of B bytes moves 2B: what it reads and what it writes.
  const double bandwidth_pct = 100 * bytes / time_us / 1e3 / (2 * machine.copy_bandwidth_GBps);
  const double flops_pct = 100 * flops / time_us / 1e6 / result.peak.tflops;
  // Above the copy bandwidth the data comes from a cache, and memory limits nothing.
  if (bandwidth_pct > 100) return std::nullopt;
  if (bandwidth_pct <= limits.memory_bandwidth_pct || flops_pct >= limits.memory_flops_pct)
    return std::nullopt;
  return Verdict{
      "memory_bound",
      fmt::format("kernels move {:.0f} % of the copy bandwidth at {:.0f} % of the matmul "
                  "peak; larger matrices per rank (lower tp, more tokens) would help",
                  bandwidth_pct, flops_pct)};
}

}  // namespace

double imbalance_pct(std::span<const double> compute_us, double window_us) {
  if (compute_us.size() < 2) return 0;
  const double mean_us = std::accumulate(compute_us.begin(), compute_us.end(), 0.0) /
                         static_cast<double>(compute_us.size());
  return 100 * (std::ranges::max(compute_us) - mean_us) / window_us;
}

std::optional<Finding> find_imbalance(const ComparedRanks& ranks, double window_us,
                                      const VerdictThresholds& limits) {
  const std::span<const double> times_us = ranks.compute_us;
  if (times_us.size() < 2) return std::nullopt;
  const auto [fastest, slowest] = std::ranges::minmax_element(times_us);
  if (*fastest <= 0 || *slowest / *fastest <= limits.imbalance_ratio) return std::nullopt;
  const auto slow_place = static_cast<std::size_t>(slowest - times_us.begin());
  const auto fast_place = static_cast<std::size_t>(fastest - times_us.begin());
  const double cost_pct = imbalance_pct(times_us, window_us);
  return Finding{
      {"imbalanced",
       fmt::format("rank {} computes {:.2f}x as long as rank {} ({:.2f} against {:.2f} ms); with "
                   "equal times the window would be about {:.1f} % shorter{}",
                   ranks.numbers[slow_place], *slowest / *fastest, ranks.numbers[fast_place],
                   *slowest / 1e3, *fastest / 1e3, cost_pct, ranks.remedy(slow_place, fast_place))},
      cost_pct};
}

std::optional<Finding> find_communication(std::string_view what, double share_pct, double cost_pct,
                                          std::string_view advice,
                                          const VerdictThresholds& limits) {
  if (share_pct <= limits.communication_pct) return std::nullopt;
  return Finding{
      {"communication_bound", fmt::format("{} is {:.1f} % of the window (limit {:g} %); {}", what,
                                          share_pct, limits.communication_pct, advice)},
      cost_pct};
}

std::optional<Verdict> costliest(std::span<const std::optional<Finding>> findings) {
  const Finding* most = nullptr;
  for (const std::optional<Finding>& finding : findings)
    if (finding && (most == nullptr || finding->cost_pct > most->cost_pct)) most = &*finding;
  return most == nullptr ? std::nullopt : std::optional{most->verdict};
}

namespace {

Verdict judge_times(const Result& result, const VerdictThresholds& thresholds,
                    const VerdictInputs& inputs) {
  const std::array findings{imbalanced(result, thresholds), bubble_bound(result, thresholds),
                            communication_bound(result, thresholds)};
  if (auto verdict = costliest(findings)) return *verdict;
  if (auto verdict = latency_bound(result, inputs)) return *verdict;
  if (auto verdict = memory_bound(result, thresholds, inputs)) return *verdict;
  const double compute_us =
      result.pipeline ? result.pipeline->measured.mean.compute_us() : result.split.comp_us;
  std::string reason =
      fmt::format("compute is {:.1f} % of the window, {} {:.1f} %",
                  100 * compute_us / window_us(result), exposed_name(result), exposed_pct(result));
  if (exposed_pct(result) > thresholds.communication_warn_pct)
    reason += fmt::format(" (above the warning level of {:g} %); {}",
                          thresholds.communication_warn_pct, advice(result));
  return {"compute_bound", reason};
}

/// What makes a rank hold less.
std::string_view memory_advice(const LayerConfig& layer) {
  if (layer.inference) return "try more tp or pp, or a smaller --batch";
  if (layer.is_pipeline())
    return layer.recompute == Recompute::full ? "try more tp or pp"
                                              : "try more tp or pp, or --recompute full";
  if (layer.parallel.context.is_split()) return "try more cp, or a shorter sequence";
  return "try more tp, or a smaller --batch";
}

}  // namespace

Verdict judge(const Result& result, const VerdictThresholds& thresholds,
              const VerdictInputs& inputs) {
  const Verdict of_times = judge_times(result, thresholds, inputs);
  const auto needed_bytes = static_cast<double>(result.mem_peak_bytes);
  if (inputs.memory_bytes <= 0 || needed_bytes <= inputs.memory_bytes) return of_times;
  return {does_not_fit,
          fmt::format("a rank needs {:.1f} GB, without what an optimizer keeps, and has {:.1f} GB; "
                      "{}; the times are those if it fitted: {}: {}",
                      needed_bytes / 1e9, inputs.memory_bytes / 1e9,
                      memory_advice(result.config.layer), of_times.name, of_times.reason)};
}

}  // namespace shardmark::bench
