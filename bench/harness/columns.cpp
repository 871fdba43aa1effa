#include "bench/harness/columns.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace shardmark::bench {
namespace {

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(int value) { return fmt::format("{}", value); }
std::string text(std::int64_t value) { return fmt::format("{}", value); }
std::string text(std::string_view value) { return std::string{value}; }
std::string text(const std::string& value) { return value; }
/// Six significant digits for rates and times, whole numbers for counts of bytes and FLOPs.
std::string text(double value) {
  if (!std::isfinite(value)) return "";
  const bool whole = std::abs(value) < 1e18 && value == std::floor(value);
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

std::string_view check_of(const Row& row) {
  if (row.result.status == Status::skipped || row.result.check_mode == CheckMode::off)
    return "skipped";
  return row.result.check.pass ? "pass" : "fail";
}
std::string_view status_of(const Row& row) {
  switch (row.result.status) {
    case Status::ok:
      return "ok";
    case Status::skipped:
      return "skipped";
    case Status::failed:
      return "failed";
  }
  return "";
}

const LayerConfig& layer(const Row& row) { return row.result.config.layer; }
const ModelShape& shape(const Row& row) { return layer(row).shape; }
const Parallel& parallel(const Row& row) { return layer(row).parallel; }

using enum Column::Holds;
using R = const Row&;

std::vector<Column> identity_columns() {
  return {
      {"schema_version", "", "version of this table", key, [](R) { return text(schema_version); }},
      {"run_id", "", "start time and process of the run that measured the row", always,
       [](R r) { return text(r.run.run_id); }},
      {"backend", "", "cpu", key, [](R r) { return text(r.run.backend); }},
      {"transport", "", "threads (ranks are threads of one process) or mpi", key,
       [](R r) { return text(r.run.transport); }},
      {"model", "", "model whose shape it is; empty for a shape of one's own", key,
       [](R r) { return text(r.result.config.model); }},
      {"op_or_block", "", "linear-column, linear-row, mlp, attention, block or model", key,
       [](R r) { return text(name_of(layer(r).block)); }},
      {"phase", "", "fwd, bwd, or step (both, no optimizer)", key,
       [](R r) { return text(name_of(r.result.config.phase)); }},
      {"tp", "ranks", "tensor-parallel degree", key, [](R r) { return text(r.result.tp()); }},
      {"sp", "", "sequence parallelism", key,
       [](R r) { return text(parallel(r).sequence_parallel); }},
      {"keep_gathered", "", "sequence parallelism keeps gathered inputs for backward", key,
       [](R r) { return text(parallel(r).keep_gathered); }},
      {"overlap", "", "communication of one chunk runs behind the next one's matmul", key,
       [](R r) { return text(parallel(r).overlap); }},
      {"overlap_chunks", "", "chunks of tokens; 1 without overlap", key,
       [](R r) { return text(parallel(r).chunks); }},
      {"gather_output", "", "linear-column: output columns gathered on every rank", key,
       [](R r) { return text(layer(r).gather_output); }},
      {"world_size", "ranks", "ranks of the launch", key,
       [](R r) { return text(r.result.world_size); }},
      {"group_size", "ranks", "ranks that communicate with each other", always,
       [](R r) { return text(r.result.tp()); }},
      {"threads_per_rank", "", "compute threads of each rank", key,
       [](R r) { return text(r.result.threads_per_rank); }},
      {"replicated", "", "ranks beyond tp ran replicas (otherwise they idled)", key,
       [](R r) { return text(r.result.replicated); }},
      {"rank_scope", "", "whose time it is: max = the slowest rank's", always,
       [](R) { return text(std::string_view{"max"}); }},
  };
}

std::vector<Column> shape_columns() {
  return {
      {"batch", "sequences", "", key, [](R r) { return text(shape(r).batch); }},
      {"seq", "tokens", "tokens of one sequence", key, [](R r) { return text(shape(r).seq); }},
      {"hidden", "", "hidden width", key, [](R r) { return text(shape(r).hidden); }},
      {"heads", "", "query heads", key, [](R r) { return text(shape(r).heads); }},
      {"kv_heads", "", "key and value heads", key, [](R r) { return text(shape(r).kv_heads); }},
      {"ffn", "", "inner width of the MLP, or the linear's split width", key,
       [](R r) { return text(shape(r).ffn); }},
      {"layers", "", "blocks (op_or_block = model)", key,
       [](R r) { return text(shape(r).layers); }},
      {"vocab", "", "vocabulary, padded (op_or_block = model)", key,
       [](R r) { return text(shape(r).vocab); }},
      {"mlp", "", "gelu or swiglu", key, [](R r) { return text(name_of(shape(r).mlp)); }},
      {"gelu", "", "erf or tanh", key, [](R r) { return text(name_of(shape(r).gelu)); }},
      {"norm", "", "layer or rms", key, [](R r) { return text(name_of(shape(r).norm)); }},
      {"positions", "", "none, rotary or learned", key,
       [](R r) { return text(name_of(shape(r).positions)); }},
      {"biases", "", "linears have biases", key, [](R r) { return text(shape(r).biases); }},
      {"dtype", "", "f32 or bf16", key, [](R r) { return text(name_of(layer(r).dtype)); }},
      {"acc_dtype", "", "accumulation of matmuls", always,
       [](R) { return text(std::string_view{"f32"}); }},
      {"causal", "", "causal attention mask", key, [](R r) { return text(shape(r).causal); }},
  };
}

std::vector<Column> time_columns() {
  return {
      {"time_us_p50", "us", "median sample; a sample is the slowest rank's time of one iteration",
       measured, [](R r) { return text(r.result.time.p50); }},
      {"time_us_p10", "us", "10th percentile", measured,
       [](R r) { return text(r.result.time.p10); }},
      {"time_us_p95", "us", "95th percentile", measured,
       [](R r) { return text(r.result.time.p95); }},
      {"time_us_p99", "us", "99th percentile", measured,
       [](R r) { return text(r.result.time.p99); }},
      {"time_us_min", "us", "fastest sample", measured,
       [](R r) { return text(r.result.time.min); }},
      {"time_us_max", "us", "slowest sample", measured,
       [](R r) { return text(r.result.time.max); }},
      {"time_us_mean", "us", "mean", measured, [](R r) { return text(r.result.time.mean); }},
      {"cv_pct", "%", "standard deviation over mean", measured,
       [](R r) { return text(r.result.time.cv_pct); }},
      {"samples", "", "timed samples", measured, [](R r) { return text(r.result.time.samples); }},
      {"warmup", "", "untimed iterations before them", measured,
       [](R r) { return text(r.result.warmup); }},
      {"inner_iterations", "", "back-to-back iterations in one sample", measured,
       [](R r) { return text(r.result.inner_iterations); }},
      {"window_us", "us", "profiled iteration, barrier to barrier; the times below split it",
       measured, [](R r) { return text(r.result.split.window_us); }},
      {"comp_us", "us", "union of compute kernels' intervals", measured,
       [](R r) { return text(r.result.split.comp_us); }},
      {"comm_us", "us", "union of communications' intervals", measured,
       [](R r) { return text(r.result.split.comm_us); }},
      {"exposed_comm_us", "us", "communication while no compute kernel runs", measured,
       [](R r) { return text(r.result.split.exposed_comm_us); }},
      {"overlapped_us", "us", "communication while compute kernels run", measured,
       [](R r) { return text(r.result.split.overlapped_us); }},
      {"idle_us", "us", "nothing runs, by the executor's own clock", measured,
       [](R r) { return text(r.result.split.idle_us); }},
      {"residual_us", "us", "window - comp - exposed_comm - idle; above 0.1 % the row fails",
       measured, [](R r) { return text(r.result.split.residual_us); }},
      {"transfer_us", "us",
       "sum over collectives of the shortest duration among the members: what moving the bytes "
       "takes once all are there",
       communicating, [](R r) { return text(r.result.transfer_us); }},
      {"wait_us", "us", "comm time of this rank's collectives beyond that: waiting for a late peer",
       communicating, [](R r) { return text(r.result.wait_us); }},
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
      {"bytes_analytic", "bytes", "across one rank's link per iteration, from the formulas",
       measured, [](R r) { return text(r.result.bytes_analytic); }},
      {"bytes_observed", "bytes", "the same, counted call by call", measured,
       [](R r) { return text(r.result.bytes_observed); }},
      {"busbw_GBps", "GB/s", "bytes_observed / communication_only_us; GB = 1e9 bytes",
       communicating, [](R r) { return text(r.result.busbw_GBps()); }},
      {"flops_model_causal", "FLOP",
       "model FLOPs of one iteration over all ranks; causal attention counts (s+1)/2 keys per "
       "query",
       measured, [](R r) { return text(r.result.flops_model_causal); }},
      {"flops_model_full", "FLOP", "the same with all s keys per query", measured,
       [](R r) { return text(r.result.flops_model_full); }},
      {"flops_hw", "FLOP", "executed by one rank, recomputation included", measured,
       [](R r) { return text(r.result.flops_observed); }},
      {"tflops_per_device", "TFLOP/s", "flops_model_causal / time_us_p50 / tp", measured,
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
      {"peak_source", "", "measured_gemm (2048^3 matmuls between the samples) or user", measured,
       [](R r) { return text(r.result.peak.source); }},
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
       "slowest "
       "rank",
       communicating, [](R r) { return text(r.result.comm_tax_pct()); }},
  };
}

std::vector<Column> quality_columns() {
  return {
      {"check", "",
       "pass, fail or skipped: comparison with the same block at tp 1 (at tp 1 with f64)", always,
       [](R r) { return text(check_of(r)); }},
      {"check_mode", "", "off, reduced (smaller shape; always at tp 1) or full", always,
       [](R r) { return text(name_of(r.result.check_mode)); }},
      {"check_exact", "", "a bitwise comparison on exact data was part of it", measured,
       [](R r) { return text(r.result.check.exact); }},
      {"max_abs_err", "", "largest difference of any element on random data", measured,
       [](R r) { return text(r.result.check.max_abs_err); }},
      {"rel_norm_err", "", "largest norm(difference) / norm(expected) of any tensor", measured,
       [](R r) { return text(r.result.check.rel_norm_err); }},
      {"tol", "", "limit of rel_norm_err", measured,
       [](R r) { return text(r.result.check.tolerance); }},
      {"mem_peak_bytes", "bytes", "largest memory of one rank's tensors and workspace", measured,
       [](R r) { return text(r.result.mem_peak_bytes); }},
      {"mem_predicted_bytes", "bytes", "the same as the record backend predicts it", always,
       [](R r) {
         const std::int64_t bytes = r.result.mem_predicted_bytes;
         return bytes > 0 ? text(bytes) : std::string{};
       }},
      {"oversubscribed", "", "more compute threads than cores: do not compare with other rows",
       always, [](R r) { return text(r.result.oversubscribed); }},
      {"profiler_overhead_pct", "%", "profiled over unprofiled median of one session, minus 1",
       measured, [](R r) { return text(r.result.profiler_overhead_pct()); }},
      {"source", "", "measured", always, [](R) { return text(std::string_view{"measured"}); }},
      {"status", "", "ok, skipped or failed", always, [](R r) { return text(status_of(r)); }},
      {"reason", "", "why it was skipped or failed", always,
       [](R r) { return text(r.result.reason); }},
      {"verdict", "",
       "imbalanced, communication_bound, latency_bound, memory_bound or compute_bound", measured,
       [](R r) { return text(r.result.verdict); }},
      {"verdict_reason", "", "the numbers behind it and one thing to try", measured,
       [](R r) { return text(r.result.verdict_reason); }},
  };
}

std::vector<Column> all_columns() {
  std::vector<Column> all;
  for (auto part :
       {identity_columns(), shape_columns(), time_columns(), rate_columns(), quality_columns()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string markdown_row(const auto& column) {
  return fmt::format("| `{}` | {} | {} |\n", column.name, column.unit, column.meaning);
}

}  // namespace

std::span<const Column> result_columns() {
  static const std::vector<Column> columns = all_columns();
  return columns;
}

std::span<const KernelColumn> kernel_columns() {
  using Kernel = const KernelRow&;
  static const std::vector<KernelColumn> columns{
      {"rank", "", "rank of the world", [](Kernel k) { return text(k.kernel.rank); }},
      {"path", "", "where in the block", [](Kernel k) { return k.kernel.path; }},
      {"op", "", "operation", [](Kernel k) { return k.kernel.op; }},
      {"kernel", "", "implementation, as its library calls it",
       [](Kernel k) { return k.kernel.name; }},
      {"kind", "", "compute or communication", [](Kernel k) { return k.kernel.kind; }},
      {"lane", "", "queue it ran on", [](Kernel k) { return k.kernel.lane; }},
      {"count", "", "calls in the profiled iteration",
       [](Kernel k) { return text(k.kernel.count); }},
      {"total_us", "us", "time of all calls; communication includes waiting",
       [](Kernel k) { return text(k.kernel.total_us); }},
      {"flops", "FLOP", "of all calls", [](Kernel k) { return text(k.kernel.flops); }},
      {"bytes_memory", "bytes", "operands of all calls, each once",
       [](Kernel k) { return text(k.kernel.bytes_memory); }},
      {"bytes_wire", "bytes", "across this rank's link",
       [](Kernel k) { return text(k.kernel.bytes_wire); }},
  };
  return columns;
}

std::string Column::cell(const Row& row) const {
  const bool is_measured = row.result.time.samples > 0;
  if (holds == Holds::measured && !is_measured) return {};
  if (holds == Holds::communicating && !(is_measured && row.result.tp() > 1)) return {};
  return value(row);
}

std::string row_key(const Row& row) {
  std::string key;
  for (const Column& column : result_columns())
    if (column.holds == Column::Holds::key) key += column.cell(row) + '\n';
  return key;
}

std::string columns_markdown() {
  const std::string head = "| Column | Unit | Meaning |\n|---|---|---|\n";
  std::string table = "### results.csv\n\n" + head;
  for (const Column& column : result_columns()) table += markdown_row(column);
  table +=
      "\n### kernels.csv\n\nThe columns of results.csv that tell configurations apart, then:\n\n" +
      head;
  for (const KernelColumn& column : kernel_columns()) table += markdown_row(column);
  return table;
}

}  // namespace shardmark::bench
