#include "bench/harness/verdict.hpp"

#include "bench/harness/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace shardmark::bench {
namespace {

std::string_view remedy(const Result& result, const VerdictThresholds& limits) {
  if (result.oversubscribed)
    return "there are more ranks than cores, so they take turns; start fewer";
  if (result.pipeline) return "try --balance measured, or --split with fewer blocks for it";
  if (result.config.layer.inference && result.config.layer.parallel.pp.size > 1)
    return "try --split with fewer blocks for it";
  if (result.balance() > limits.imbalance_ratio)
    return "the masks give it more to do; try --order zigzag or striped";
  return "look for other load on its core, or pin the ranks";
}

std::optional<Verdict> imbalanced(const Result& result, const VerdictThresholds& limits) {
  if (result.splits.size() < 2) return std::nullopt;
  const auto [fastest, slowest] =
      std::ranges::minmax_element(result.splits, {}, &TimeSplit::comp_us);
  if (fastest->comp_us <= 0 || slowest->comp_us / fastest->comp_us <= limits.imbalance_ratio)
    return std::nullopt;
  return Verdict{
      "imbalanced",
      fmt::format("rank {} computes {:.2f}x as long as rank {} ({:.2f} against {:.2f} ms); "
                  "{}",
                  slowest - result.splits.begin(), slowest->comp_us / fastest->comp_us,
                  fastest - result.splits.begin(), slowest->comp_us / 1e3, fastest->comp_us / 1e3,
                  remedy(result, limits))};
}

/// Of inference over several stages: the bubble is whatever is no work of a stage.
std::optional<Verdict> stages_wait(const Result& result, const VerdictThresholds& limits) {
  const LayerConfig& layer = result.config.layer;
  const double idle_pct = result.inference ? 100 * (1 - result.inference->on_stage) : 0;
  if (layer.parallel.pp.size == 1 || idle_pct <= limits.bubble_pct) return std::nullopt;
  const int requests = layer.inference->requests, stages = layer.parallel.pp.size;
  return Verdict{"bubble_bound",
                 fmt::format("stages have nothing to do for {:.1f} % of the window (limit {:g} %): "
                             "{} request{} for {} stages; try --microbatches {}, or tp instead of "
                             "pp",
                             idle_pct, limits.bubble_pct, requests, requests == 1 ? "" : "s",
                             stages, std::max(2 * requests, stages))};
}

std::optional<Verdict> bubble_bound(const Result& result, const VerdictThresholds& limits) {
  if (result.config.layer.inference) return stages_wait(result, limits);
  if (!result.pipeline) return std::nullopt;
  const Bubble& bubble = result.pipeline->measured;
  if (100 * bubble.of_total <= limits.bubble_pct) return std::nullopt;
  return Verdict{
      "bubble_bound",
      fmt::format("the bubble is {:.1f} % of the window (limit {:g} %; {:.1f} % by theory with the "
                  "same op times); try --microbatches {} (about {:.1f} %), or a schedule with a "
                  "smaller bubble",
                  100 * bubble.of_total, limits.bubble_pct,
                  100 * result.pipeline->replayed.of_total, 2 * result.config.layer.pipeline.micro,
                  100 * bubble.of_total / (2 - bubble.of_total))};
}

/// In percent of the window. Of a pipeline only what is no waiting: that is its bubble.
double exposed_pct(const Result& result) {
  if (result.inference && result.config.layer.parallel.pp.size > 1)
    return 100 * result.inference->in_collectives;
  if (!result.pipeline) return result.exposed_comm_pct();
  const PipelineSplit& mean = result.pipeline->measured.mean;
  return 100 * (mean.collective_us + mean.exposed_transfer_us) / std::max(mean.window_us, 1e-9);
}

std::string advice(const Result& result) {
  const Parallel& parallel = result.config.layer.parallel;
  if (result.pipeline)
    return parallel.dp.size > 1 ? "try more --microbatches: gradients are summed once for all"
                                : "try a larger hidden size, or a schedule with fewer --chunks";
  if (result.config.layer.inference)
    return "try pp instead of tp, a larger --batch or a larger hidden size";
  if (!parallel.overlap) return "try --overlap on";
  if (parallel.context.is_split())
    return "try a longer sequence, another --kind, or fewer cp (--advise says which)";
  return fmt::format("try tp {} with more data parallelism, a larger batch or a larger hidden size",
                     std::max(1, parallel.tp.size / 2));
}

std::optional<Verdict> communication_bound(const Result& result, const VerdictThresholds& limits) {
  const double share = exposed_pct(result);
  if (share <= limits.communication_pct) return std::nullopt;
  return Verdict{"communication_bound",
                 fmt::format("exposed communication is {:.1f} % of the window (limit {:g} %); {}",
                             share, limits.communication_pct, advice(result))};
}

/// Counts only where communication matters at all: below a tenth of the window a latency-bound call
/// limits nothing.
std::optional<Verdict> latency_bound(const Result& result, const VerdictInputs& machine) {
  constexpr double worth_a_look_pct = 10;
  int calls = 0;
  for (const KernelSummary& kernel : result.kernels)
    if (kernel.rank == 0 && kernel.kind == "communication") calls += kernel.count;
  if (calls == 0 || result.communication_only_us <= 0 || exposed_pct(result) < worth_a_look_pct)
    return std::nullopt;
  const double per_call_us = result.communication_only_us / calls;
  if (machine.latency_us < per_call_us / 2) return std::nullopt;
  return Verdict{"latency_bound",
                 fmt::format("a communication takes {:.1f} us of which {:.1f} us are latency "
                             "({:.0f} bytes a call); use fewer chunks or more tokens per call",
                             per_call_us, machine.latency_us, result.bytes_observed / calls)};
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

Verdict judge(const Result& result, const VerdictThresholds& thresholds,
              const VerdictInputs& inputs) {
  if (auto verdict = imbalanced(result, thresholds)) return *verdict;
  if (auto verdict = bubble_bound(result, thresholds)) return *verdict;
  if (auto verdict = communication_bound(result, thresholds)) return *verdict;
  if (auto verdict = latency_bound(result, inputs)) return *verdict;
  if (auto verdict = memory_bound(result, thresholds, inputs)) return *verdict;
  std::string reason = fmt::format(
      "compute is {:.1f} % of the window, exposed communication {:.1f} %",
      100 * result.split.comp_us / std::max(result.split.window_us, 1e-9), exposed_pct(result));
  if (exposed_pct(result) > thresholds.communication_warn_pct)
    reason += fmt::format(" (above the warning level of {:g} %); {}",
                          thresholds.communication_warn_pct, advice(result));
  return {"compute_bound", reason};
}

}  // namespace shardmark::bench
