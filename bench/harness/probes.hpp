#pragma once

#include "bench/harness/engine.hpp"
#include "bench/harness/verdict.hpp"
#include "core/cpu/gemm_probe.hpp"
#include "core/rank.hpp"

#include <optional>
#include <vector>

namespace shardmark::bench {

/// Measures the GEMM peak between the samples of a row, since the machine's speed drifts: plain and
/// packed 2048^3 products on all ranks of the case at once, and on rank 0 alone. The peak is the
/// larger of the two medians. With --peak-tflops, and on a GPU, nothing is run. All functions are
/// collective over the world.
class PeakMeter {
 public:
  /// `engine` is null on ranks outside of the case; `user_tflops` is that of --peak-tflops, or 0.
  PeakMeter(Engine* engine, DType dtype, double user_tflops, Transport& transport, int num_active);
  /// Every rank of the case at once.
  void probe();
  /// Rank 0 while the others wait.
  void probe_alone();
  /// Mean over the case's ranks of their medians.
  [[nodiscard]] Peak result();

 private:
  struct Rates {
    std::vector<double> plain, packed;
    [[nodiscard]] double best() const;
  };
  void run(Rates& rates);

  std::optional<Peak> known_;  ///< on all ranks or none
  Transport& transport_;
  int num_active_;
  Transport::Waiting waiting_;
  GemmProbe* probe_{nullptr};
  Rates together_, alone_;
};

/// The group whose latency counts for the verdict: tp, or cp where that is not split.
[[nodiscard]] Group latency_group(const Parallel& parallel);
/// Where the probe communicates; connected by the caller.
inline constexpr Lane probe_lane = Lane::tp;
/// Copy bandwidth (64 MiB, bytes copied per second, all ranks at once) and the time of a 64-byte
/// all-reduce over `group`; medians. Collective over the group.
[[nodiscard]] VerdictInputs probe_machine(Rank& rank, const Group& group);

}  // namespace shardmark::bench
