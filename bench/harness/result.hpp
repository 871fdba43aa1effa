#pragma once

#include "bench/harness/inference_times.hpp"
#include "bench/harness/pipeline_times.hpp"
#include "core/record.hpp"
#include "core/types.hpp"
#include "layers/check.hpp"
#include "layers/recording.hpp"
#include "layers/volume.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench {

/// One configuration of a sweep. Groups in `layer.parallel` are filled in per rank when it runs;
/// here only their sizes count.
struct Case {
  LayerConfig layer;
  Phase phase{Phase::step};
  std::string model;  ///< preset name or empty
  std::int64_t vocab_unpadded{0};
  // Pipelines: how messages travel, and how blocks became stages, as the columns show it.
  std::string p2p, balance;
  std::string skip_reason;  ///< not empty: the row is `skipped`
};

/// Samples are the slowest rank's time of one iteration, in microseconds.
struct TimeSummary {
  double p50{0}, p10{0}, p95{0}, p99{0}, min{0}, max{0}, mean{0}, cv_pct{0};
  double p50_ci_pct{0};  ///< median_noise in %: half the width of the 95 % interval of p50
  int samples{0};
};

/// Where one window (barrier to barrier, one profiled iteration) went on one rank, microseconds.
/// window = comp + exposed_comm + idle + residual. (Copies between devices do not exist on a CPU.)
struct TimeSplit {
  double window_us{0}, comp_us{0}, comm_us{0}, exposed_comm_us{0}, overlapped_us{0}, idle_us{0},
      residual_us{0};
};

/// The GEMM peak that the samples are compared with, TFLOP/s of one device.
struct Peak {
  double tflops{0};        ///< per rank, all ranks of the case at once
  double alone_tflops{0};  ///< one rank while the others wait
  std::string source;  ///< measured_gemm, machine:NAME, user, a data sheet, or why there is none
};

/// Time per kernel name on one rank in the profiled iteration.
struct KernelSummary {
  int rank{0};
  std::string op{}, name{}, path{};  ///< op name, implementation, path of the op
  std::string kind{}, lane{};
  int group_size{1};  ///< of a communication
  int count{0};
  double total_us{0}, flops{0}, bytes_memory{0}, bytes_wire{0};
};

/// What one rank of a case does in an iteration.
struct RankWork {
  double flops_useful{0};  ///< matmuls and visible pairs; backward attention as twice the forward
  double flops_done{0};    ///< executed, recomputation included
  double bytes_plan{0};    ///< across its link, summed over the recorded ops
  double activation_bytes{0}, exchange_bytes{0};  ///< memory, by category, at the peak
  double activation_claim_bytes{0};               ///< of the former what a pipeline's schedule says
  double kv_bytes{0};                             ///< all K and V that its attention ops read
};

enum class Status : std::uint8_t { ok, skipped, failed };

/// Everything a row, a table line and the summaries are made of. On rank 0 it is complete.
struct Result {
  Case config;
  Status status{Status::ok};
  std::string reason;
  int world_size{1};
  int threads_per_rank{1};
  bool replicated{false};  ///< --fill replicate filled the other ranks
  TimeSummary time;        ///< unprofiled
  int warmup{0}, inner_iterations{1};
  TimeSplit split;                ///< of the rank with the largest window share of exposed comm
  std::vector<TimeSplit> splits;  ///< per rank of the case
  std::vector<RankWork> work;     ///< per rank of the case
  double exchange_us{0};          ///< that rank's communications on the cp lane
  /// Of that rank's collectives, see Waiting in trace.hpp; mean nothing where there are stages.
  double transfer_us{0}, wait_us{0};
  double profiled_us{0};     ///< median of the profiled iterations
  double interleaved_us{0};  ///< median of the plain iterations between them
  double compute_only_us{0}, communication_only_us{0};  ///< medians of the baselines, 0 = not run
  double comp_alone_us{0};  ///< kernel time of the compute-only baseline
  double comm_alone_us{0};
  /// Kernel time with both running, like the two above: the median per rank, the largest of ranks.
  double comp_together_us{0}, comm_together_us{0};
  double bytes_analytic{0}, bytes_observed{0};        ///< of the rank that sends most
  double flops_model_causal{0}, flops_model_full{0};  ///< over all ranks of one replica
  double flops_observed{0};                           ///< executed by a rank, mean over ranks
  std::optional<PipelineTimes> pipeline;              ///< of a pipeline that was profiled
  std::optional<InferenceTimes> inference;            ///< of inference that was profiled
  Peak peak;
  CheckResult check;
  CheckMode check_mode{CheckMode::reduced};
  std::int64_t mem_peak_bytes{0}, mem_predicted_bytes{0};  ///< of the rank with the most
  bool oversubscribed{false};
  std::string throttled_by;  ///< reasons of rank 0's GPU between the samples; empty: none
  std::string verdict, verdict_reason;
  std::vector<KernelSummary> kernels;
  std::vector<VolumeLine> volume;  ///< the lines of bytes_analytic

  // Derived rates; formulas in results/README.md.
  [[nodiscard]] int tp() const { return config.layer.parallel.tp.size; }
  [[nodiscard]] int cp() const { return config.layer.parallel.context.cp.size; }
  [[nodiscard]] int num_ranks() const { return config.layer.parallel.num_ranks(); }
  [[nodiscard]] double balance() const;
  [[nodiscard]] double speedup_ceiling() const;
  [[nodiscard]] double tflops_per_device() const;
  [[nodiscard]] double mfu_causal_pct() const;
  [[nodiscard]] double mfu_full_pct() const;
  [[nodiscard]] double hfu_pct() const;
  [[nodiscard]] double busbw_GBps() const;
  [[nodiscard]] double overlap_pct() const;
  [[nodiscard]] double exposed_comm_pct() const;
  [[nodiscard]] double comp_tax_pct() const;
  [[nodiscard]] double comm_tax_pct() const;
  [[nodiscard]] double profiler_overhead_pct() const;
};

/// One rank's records of the profiled iteration, for the timeline. Times are relative to the
/// window's start on that rank (the barrier), so ranks line up.
struct RankTrace {
  struct Interval {
    std::string name{}, op{}, path{}, dtype{};  ///< implementation, op, path of the op
    Lane lane{Lane::compute};
    OpKind kind{OpKind::compute};
    std::uint32_t op_seq{0};
    double start_us{0}, end_us{0}, flops{0}, bytes_memory{0}, bytes_wire{0};
    std::string group{};  ///< "tp[0,1]" for communication
    int group_size{1};
    std::int64_t elements{0};
  };
  int rank{0};
  double window_us{0};
  std::vector<Interval> intervals;
};

}  // namespace shardmark::bench
