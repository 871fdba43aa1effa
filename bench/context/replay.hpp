#pragma once

#include "bench/context/rates.hpp"

#include <span>
#include <vector>

namespace shardmark::bench::context {

/// How long an iteration should take.
struct Prediction {
  double time_us{0};      ///< from the start to the last lane's end
  double compute_us{0};   ///< of the rank that computes longest
  double exchange_us{0};  ///< communication of the rank that communicates longest, without waiting
  /// What the iteration takes beyond the longest compute.
  [[nodiscard]] double exposed_us() const { return time_us - compute_us; }
};

/// Runs the recorded ops of all ranks (element r: rank r) with the times of `rates`: a lane is in
/// order, an Await holds it until the Signal was reached, a collective starts when its last member
/// has come, and a message when both its ends have. Lanes and directions of a link do not slow each
/// other down. Throws Error if a lane cannot finish.
[[nodiscard]] Prediction replay(std::span<const std::vector<OpRecord>> ranks,
                                const MachineRates& rates);

/// The same for a configuration, from its recorded program.
[[nodiscard]] Prediction predict(const Case& config, const MachineRates& rates);

}  // namespace shardmark::bench::context
