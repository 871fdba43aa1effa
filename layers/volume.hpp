#pragma once

#include "layers/recording.hpp"

#include <string>
#include <vector>

namespace shardmark {

/// One line of communication: what it is for, its bytes across one rank's link per iteration under
/// a ring algorithm, and the formula with numbers a reader can redo.
struct VolumeLine {
  std::string what, formula;
  double bytes{0};
};
/// Closed-form communication of one iteration on the rank whose view `config.parallel` is; written
/// from the formulas (Korthikanti et al., arXiv 2205.05198, plus re-gather), not from the op list,
/// so that the two can be compared. t = tp, P = cp, T = tokens of this rank's cp position. In a
/// pipeline T is of one micro-batch, messages count on the rank that sends them, and what is
/// recomputed communicates again.
///
/// One exception: where masks let a ring send less than everything to everybody (window, packed
/// sequences, causal in contiguous order) its line is counted from the op list and says so.
[[nodiscard]] std::vector<VolumeLine> communication_volume(const LayerConfig& config, Phase phase);
[[nodiscard]] double total_bytes(const std::vector<VolumeLine>& lines);

/// Model FLOPs of one iteration over all ranks, recomputation excluded, backward = 2 x forward:
/// projections 2Th(2q + 2kv) + MLP 2c Th ffn (c = 2, SwiGLU 3) + attention a T s q with a = 4 for
/// `full` and exactly 2(s+1)/s for `causal`; logits 2ThV once per model. `causal` counts what the
/// masks leave: with a window or packed sequences 4 x q x batch x visible pairs (core/places.hpp);
/// without causal masks and these it is `full`. Inference has forward passes only, and logits 2bhV
/// a pass: of the last token of each sequence.
struct ModelFlops {
  double causal{0}, full{0};
};
[[nodiscard]] ModelFlops model_flops(const LayerConfig& config, Phase phase);

/// Parameters of the matrices one rank multiplies with.
[[nodiscard]] double matmul_parameters(const LayerConfig& config);

}  // namespace shardmark
