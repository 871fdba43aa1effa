#include "bench/analyze/flops.hpp"

#include "bench/analyze/windows.hpp"
#include "bench/harness/statistics.hpp"
#include "core/cuda/devices.hpp"
#include "core/error.hpp"
#include "layers/presets.hpp"
#include "layers/volume.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace shardmark::bench {
namespace {

/// True if anything is said; throws if it is too much or too little.
bool is_given(const WorkOfStep& work) {
  if (work.flops > 0) {
    if (!work.model.empty() || work.tokens > 0 || work.seq > 0)
      throw InputError{"--flops says what a step computes; leave out --model, --tokens and --seq"};
    return true;
  }
  if (work.model.empty()) {
    if (work.tokens > 0 || work.seq > 0)
      throw InputError{
          "--tokens and --seq say how much of a model a step computes; give --model, too"};
    if (work.peak_tflops > 0)
      throw InputError{
          "--peak-tflops is compared with what a step computes; give --model and --tokens, or "
          "--flops"};
    return false;
  }
  if (work.tokens <= 0)
    throw InputError{message("--model ", work.model,
                             " needs --tokens: those of one step, of all ranks together, each "
                             "once (global batch x sequence length)")};
  return true;
}

/// Forward and backward of all tokens.
ModelFlops flops_of(const WorkOfStep& work) {
  if (work.flops > 0) return {work.flops, work.flops};
  LayerConfig config;
  config.block = BlockKind::model;
  config.shape = find_model(work.model).shape;
  if (work.seq > 0) config.shape.seq = work.seq;
  const ModelFlops sequence = model_flops(config, Phase::step);
  const double num_sequences =
      static_cast<double>(work.tokens) / static_cast<double>(config.shape.seq);
  return {sequence.causal * num_sequences, sequence.full * num_sequences};
}

/// Time of each step on its slowest rank, by name; steps that a rank lacks are left out.
std::vector<double> step_times_us(const analyze::ChosenWindows& windows) {
  struct Step {
    std::size_t num_ranks{0};
    double time_us{0};
  };
  std::map<std::string, Step> steps;
  for (const std::vector<analyze::RankWindow>& of_rank : windows.steps)
    for (const analyze::RankWindow& window : of_rank) {
      if (!window.is_whole) continue;
      Step& step = steps[window.name];
      ++step.num_ranks;
      step.time_us = std::max(step.time_us, static_cast<double>(length_ns(*window.spans)) / 1e3);
    }
  std::vector<double> times_us;
  for (const auto& [name, step] : steps)
    if (step.num_ranks == windows.steps.size() && step.time_us > 0)
      times_us.push_back(step.time_us);
  return times_us;
}

/// Of the window on the rank where it is longest.
double window_time_us(const Recording& recording, const analyze::ChosenWindows& windows) {
  double longest_us = 0;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const RankRecording& rank = recording.ranks[i];
    const Accounting accounting{rank.timeline, rank.classes};
    if (const auto whole = account_in(accounting, rank, windows.all[i]))
      longest_us = std::max(longest_us, static_cast<double>(whole->span_ns) / 1e3);
  }
  return longest_us;
}

void set_peak(Mfu& mfu, const Recording& recording, const WorkOfStep& work) {
  if (work.peak_tflops > 0) {
    mfu.peak_tflops = work.peak_tflops;
    mfu.peak_source = "user";
    return;
  }
  std::string device;
  for (const RankRecording& rank : recording.ranks) {
    const std::string& name = rank.timeline.device_name;
    if (!device.empty() && !name.empty() && name != device)
      throw InputError{message("the ranks ran on several devices (", device, " and ", name,
                               "); give --peak-tflops of one")};
    if (device.empty()) device = name;
  }
  if (device.empty())
    throw InputError{"the recording does not name its device; give --peak-tflops of one"};
  const cuda::Peak peak = cuda::peak_tflops(device, work.dtype);
  if (!peak.unknown.empty()) throw InputError{peak.unknown};
  mfu.peak_tflops = peak.value;
  mfu.peak_source = message(device, ", ", name_of(work.dtype), ", dense: ", peak.source);
}

}  // namespace

std::optional<Mfu> model_flops_utilization(const Recording& recording, const WorkOfStep& work,
                                           const analyze::ChosenWindows& windows) {
  if (!is_given(work) || recording.ranks.empty()) return std::nullopt;
  const ModelFlops flops = flops_of(work);
  Mfu mfu;
  mfu.flops_causal = flops.causal;
  mfu.flops_full = flops.full;
  set_peak(mfu, recording, work);
  std::vector<double> times_us = step_times_us(windows);
  mfu.num_steps = static_cast<std::int64_t>(times_us.size());
  if (times_us.empty()) {
    times_us.push_back(window_time_us(recording, windows));
    mfu.note =
        message("no whole step is on all ranks: ",
                windows.name == "trace" ? "the whole trace" : windows.name, " is taken for one");
  }
  mfu.step_us = median(times_us);
  if (mfu.step_us <= 0) throw InputError{"there is no device work whose time could be compared"};
  const double step_s = mfu.step_us * 1e-6;
  mfu.num_devices = std::max(recording.world_size, static_cast<int>(recording.ranks.size()));
  mfu.tokens_per_s = static_cast<double>(work.tokens) / step_s;
  const auto tflops = [&](double all) { return all / step_s / mfu.num_devices / 1e12; };
  mfu.tflops_per_device = tflops(flops.causal);
  mfu.mfu_causal_pct = 100 * tflops(flops.causal) / mfu.peak_tflops;
  mfu.mfu_full_pct = 100 * tflops(flops.full) / mfu.peak_tflops;
  return mfu;
}

}  // namespace shardmark::bench
