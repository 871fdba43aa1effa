// The columns of results.csv that a measurement fills.

#include "bench/harness/column_list.hpp"

namespace shardmark::bench {
namespace {

using enum Column::Holds;
using Of = Column::Of;
using R = const Row&;

/// Numbers that go by collectives say nothing of several stages: the two ends of a message are not
/// one collective, and almost all of their time is waiting for work.
std::string of_one_stage(R r, double value) {
  return r.result.config.layer.parallel.pp.size > 1 ? std::string{} : text(value);
}

}  // namespace

std::vector<Column> time_columns() {
  return {
      {"time_us_p50", "us", "median sample; a sample is the slowest rank's time of one iteration",
       measured, [](R r) { return text(r.result.time.p50); }},
      {"time_us_p10", "us", "10th percentile", sampled,
       [](R r) { return text(r.result.time.p10); }},
      {"time_us_p95", "us", "95th percentile", sampled,
       [](R r) { return text(r.result.time.p95); }},
      {"time_us_p99", "us", "99th percentile", sampled,
       [](R r) { return text(r.result.time.p99); }},
      {"time_us_min", "us", "fastest sample", sampled, [](R r) { return text(r.result.time.min); }},
      {"time_us_max", "us", "slowest sample", sampled, [](R r) { return text(r.result.time.max); }},
      {"time_us_mean", "us", "mean", sampled, [](R r) { return text(r.result.time.mean); }},
      {"cv_pct", "%", "standard deviation over mean", sampled,
       [](R r) { return text(r.result.time.cv_pct); }},
      {"samples", "", "timed samples", sampled, [](R r) { return text(r.result.time.samples); }},
      {"warmup", "", "untimed iterations before them", sampled,
       [](R r) { return text(r.result.warmup); }},
      {"inner_iterations", "", "back-to-back iterations in one sample", sampled,
       [](R r) { return text(r.result.inner_iterations); }},
      {"window_us", "us", "profiled iteration, barrier to barrier; the times below split it",
       measured, [](R r) { return exact_us(r.result.split.window_us); }},
      {"comp_us", "us", "union of compute kernels' intervals", measured,
       [](R r) { return exact_us(r.result.split.comp_us); }},
      {"comm_us", "us", "union of communications' intervals", measured,
       [](R r) { return exact_us(r.result.split.comm_us); }},
      {"exposed_comm_us", "us", "communication while no compute kernel runs", measured,
       [](R r) { return exact_us(r.result.split.exposed_comm_us); }},
      {"exchange_us", "us",
       "communications on the cp lane, waiting included, of the rank whose split this is", measured,
       [](R r) { return text(r.result.exchange_us); }, Of::cp},
      {"overlapped_us", "us", "communication while compute kernels run", measured,
       [](R r) { return exact_us(r.result.split.overlapped_us); }},
      {"idle_us", "us", "nothing runs, by the executor's own clock", measured,
       [](R r) { return exact_us(r.result.split.idle_us); }},
      {"residual_us", "us", "window - comp - exposed_comm - idle; above 0.1 % the row fails",
       measured, [](R r) { return exact_us(r.result.split.residual_us); }},
      {"transfer_us", "us",
       "sum over collectives of the shortest duration among the members: what moving the bytes "
       "takes once all are there; empty of several stages (pp_transfer_us)",
       communicating, [](R r) { return of_one_stage(r, r.result.transfer_us); }},
      {"wait_us", "us",
       "comm time of this rank's collectives beyond that: waiting for a late peer; empty of "
       "several "
       "stages (pp_wait_us)",
       communicating, [](R r) { return of_one_stage(r, r.result.wait_us); }},
      {"comp_comm_ratio", "", "comp_us / comm_us", communicating,
       [](R r) { return text(r.result.split.comp_us / r.result.split.comm_us); }},
      {"compute_only_us", "us", "median of the same iteration without its communication",
       communicating, [](R r) { return text(r.result.compute_only_us); }},
      {"communication_only_us", "us", "median of the same iteration's communication alone",
       communicating, [](R r) { return text(r.result.communication_only_us); }},
  };
}

std::vector<Column> rate_columns() {
  return {
      {"bytes_analytic", "bytes",
       "across the link of the rank that sends most, per iteration, from the formulas", measured,
       [](R r) { return text(r.result.bytes_analytic); }},
      {"bytes_plan", "bytes", "the same, summed over the recorded operations", measured,
       [](R r) { return text(busiest(r, &RankWork::bytes_plan)); }, Of::cp},
      {"bytes_observed", "bytes", "the same, counted call by call", measured,
       [](R r) { return text(r.result.bytes_observed); }},
      {"busbw_GBps", "GB/s", "bytes_observed / communication_only_us; GB = 1e9 bytes",
       communicating, [](R r) { return text(r.result.busbw_GBps()); }},
      {"flops_model_causal", "FLOP",
       "model FLOPs of one iteration over all ranks; attention counts the pairs that causal masks, "
       "windows and packing leave visible ((s+1)/2 keys per query of a causal sequence)",
       measured, [](R r) { return text(r.result.flops_model_causal); }},
      {"flops_model_full", "FLOP", "the same with all s keys per query", measured,
       [](R r) { return text(r.result.flops_model_full); }},
      {"flops_hw", "FLOP", "executed by a rank, recomputation included; mean over ranks", measured,
       [](R r) { return text(r.result.flops_observed); }},
      {"flops_useful_max", "FLOP",
       "of the busiest rank: visible pairs and matmuls only, backward attention as twice the "
       "forward; contains the K and V projections of KV heads that tp ranks share, on each of them",
       measured, [](R r) { return text(busiest(r, &RankWork::flops_useful)); }, Of::cp},
      {"flops_useful_mean", "FLOP", "the same, mean over ranks", measured,
       [](R r) { return text(mean(r, &RankWork::flops_useful)); }, Of::cp},
      {"flops_done_max", "FLOP", "executed by the busiest rank, recomputation included", measured,
       [](R r) { return text(busiest(r, &RankWork::flops_done)); }, Of::cp},
      {"flops_done_mean", "FLOP", "the same, mean over ranks", measured,
       [](R r) { return text(mean(r, &RankWork::flops_done)); }, Of::cp},
      {"balance", "", "flops_useful_max / flops_useful_mean; 1 is balanced", measured,
       [](R r) { return text(r.result.balance()); }, Of::cp},
      {"speedup_ceiling", "",
       "cp / balance: largest speed-up over cp 1 that this split of the work allows (contiguous "
       "causal: P x P/(2P-1))",
       measured, [](R r) { return text(r.result.speedup_ceiling()); }, Of::cp},
      {"tflops_per_device", "TFLOP/s", "flops_model_causal / time_us_p50 / group_size", measured,
       [](R r) { return text(r.result.tflops_per_device()); }},
      {"mfu_causal_pct", "%", "tflops_per_device / peak_tflops", measured,
       [](R r) { return text(r.result.mfu_causal_pct()); }},
      {"mfu_full_pct", "%", "the same with flops_model_full", measured,
       [](R r) { return text(r.result.mfu_full_pct()); }},
      {"hfu_pct", "%", "flops_hw / time_us_p50 / peak_tflops", measured,
       [](R r) { return text(r.result.hfu_pct()); }},
      {"peak_tflops", "TFLOP/s", "peak of one rank while all ranks of the row work", measured,
       [](R r) { return text(r.result.peak.tflops); }},
      {"peak_alone_tflops", "TFLOP/s", "peak of one rank while the others wait", measured,
       [](R r) { return text(r.result.peak.alone_tflops); }},
      {"peak_source", "",
       "measured_gemm (2048^3 matmuls between the samples), machine:NAME (of its file) or user",
       measured, [](R r) { return text(r.result.peak.source); }},
      {"overlap_pct", "%", "overlapped_us / comm_us", communicating,
       [](R r) { return text(r.result.overlap_pct()); }},
      {"exposed_comm_pct", "%", "exposed_comm_us / window_us", measured,
       [](R r) { return text(r.result.exposed_comm_pct()); }},
      {"comp_tax_pct", "%",
       "compute kernels' time over that of the compute-only run, minus 1; medians of the slowest "
       "rank",
       communicating, [](R r) { return text(r.result.comp_tax_pct()); }},
      {"comm_tax_pct", "%",
       "communication time over that of the communication-only run, minus 1; medians of the "
       "slowest rank; empty of several stages, where it is mostly waiting",
       communicating, [](R r) { return of_one_stage(r, r.result.comm_tax_pct()); }},
  };
}

}  // namespace shardmark::bench
