#pragma once

#include "bench/analyze/recording.hpp"
#include "core/types.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace shardmark::bench {
namespace analyze {
struct ChosenWindows;
}

/// What a step computes, as the user says, and on what. Either `model` with `tokens`, or `flops`.
struct WorkOfStep {
  std::string model{};       ///< of layers/presets.hpp
  std::int64_t tokens{0};    ///< of all ranks together, each once, in one step
  std::int64_t seq{0};       ///< tokens per sequence; 0: what the model was published with
  double flops{0};           ///< of one step over all ranks; both conventions are then this
  double peak_tflops{0};     ///< of one device; 0: by the device's name
  DType dtype{DType::bf16};  ///< of the matmuls, for a peak by name
};

/// Model FLOP/s of a step over the peak of all devices (METRICS.md 1.2: forward and backward,
/// recomputation excluded; Chowdhery et al., arXiv 2204.02311, appendix B, with the attention core
/// counted in full, and for `causal` only what a causal mask leaves).
struct Mfu {
  double flops_causal{0}, flops_full{0};  ///< of one step over all ranks
  double step_us{0};  ///< median over the chosen steps; one lasts as long as its slowest rank
  std::int64_t num_steps{0};
  int num_devices{0};           ///< world size
  double tokens_per_s{0};       ///< 0 where only FLOPs are given
  double tflops_per_device{0};  ///< causal
  double mfu_causal_pct{0}, mfu_full_pct{0};
  double peak_tflops{0};
  std::string peak_source;
  std::string note;  ///< empty, or what to know: no steps, so the whole trace is one; ...
};
/// Nothing where the user says nothing of the work. Of `windows` the steps count that all ranks
/// have and that --window cuts nothing off; without any the window is taken for one step. Throws
/// InputError where it says too much or too little, the model is unknown, or there is no peak for
/// the device: the message names the option.
[[nodiscard]] std::optional<Mfu> model_flops_utilization(const Recording& recording,
                                                         const WorkOfStep& work,
                                                         const analyze::ChosenWindows& windows);

}  // namespace shardmark::bench
