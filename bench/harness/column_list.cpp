// The columns of results.csv that tell rows apart, and those about their quality. A column of one
// program only says so.

#include "bench/harness/column_list.hpp"

#include <utility>

namespace shardmark::bench {
namespace {

std::string_view check_of(const Row& row) {
  if (!row.run.machine.empty()) return "";
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
const ContextParallel& context(const Row& row) { return parallel(row).context; }
const PipelineConfig& pipeline(const Row& row) { return layer(row).pipeline; }

bool decodes(const Row& row) {
  const auto& run = layer(row).inference;
  return run && run->step == InferenceStep::decode;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string all;
  for (const std::int64_t number : numbers) {
    if (!all.empty()) all += '+';
    all += text(number);
  }
  return all;
}

using enum Column::Holds;
using Of = Column::Of;
using R = const Row&;

/// What runs, up to how its stages are made.
std::vector<Column> program_columns() {
  return {
      {"schema_version", "", "version of this table", key, [](R) { return text(schema_version); }},
      {"run_id", "", "start time and process of the run that measured the row", always,
       [](R r) { return text(r.run.run_id); }},
      {"backend", "", "what computed: cpu or cuda; record where nothing ran", key,
       [](R r) { return text(r.run.backend); }},
      {"transport", "",
       "threads (ranks are threads of one process) or mpi; between GPUs nccl, staged or mpi-cuda; "
       "empty where nothing ran",
       key, [](R r) { return text(r.run.transport); }},
      {"device", "", "rank 0's processor or GPU; empty where nothing ran", always,
       [](R r) { return text(r.run.device); }},
      {"model", "", "model whose shape it is; empty for a shape of one's own", key,
       [](R r) { return text(r.result.config.model); }, Of::models},
      {"op_or_block", "",
       "linear-column, linear-row, mlp, attention, block or model; attention-core is attention "
       "alone",
       key, [](R r) { return text(name_of(layer(r).block)); }},
      {"phase", "", "fwd, bwd, or step (both, no optimizer)", key,
       [](R r) { return text(name_of(r.result.config.phase)); }},
      {"mode", "", "train, or infer (forward passes of requests)", key,
       [](R r) { return text(layer(r).inference ? "infer" : "train"); }, Of::pp},
      {"step", "", "inference: prefill or decode", key,
       [](R r) { return layer(r).inference ? text(name_of(layer(r).inference->step)) : ""; },
       Of::pp},
      {"tokens", "", "decode: tokens of each request in an iteration", key,
       [](R r) { return decodes(r) ? text(layer(r).inference->tokens) : ""; }, Of::pp},
      {"schedule", "", "order of forwards and backwards, or the file that it is from", key,
       [](R r) { return text(pipeline(r).schedule_name); }, Of::pp},
      {"pp", "ranks", "pipeline degree", key, [](R r) { return text(parallel(r).pp.size); },
       Of::pp},
      {"vpp", "", "stages of a rank (chunks)", key, [](R r) { return text(pipeline(r).chunks); },
       Of::pp},
      {"microbatches", "", "micro-batches of an iteration; inference: requests at once", key,
       [](R r) { return text(pipeline(r).micro); }, Of::pp},
      {"dp", "ranks", "copies of the pipeline, whose gradients are summed", key,
       [](R r) { return text(parallel(r).dp.size); }, Of::pp},
      {"p2p", "", "messages: split, merged, or none (pp 1)", key,
       [](R r) { return r.result.config.p2p; }, Of::pp},
      {"balance", "", "how blocks became stages: count, measured, or the split that was given", key,
       [](R r) { return r.result.config.balance; }, Of::pp},
      {"split", "", "blocks of each stage, joined by '+'", always,
       [](R r) { return joined(pipeline(r).blocks); }, Of::pp},
      {"recompute", "",
       "what backward runs again instead of keeping it: none, selective (the attention core) or "
       "full (whole blocks)",
       key, [](R r) { return text(name_of(layer(r).recompute)); }, Of::pp},
      {"tied_embeddings", "", "the head's matrix is the embedding's table", key,
       [](R r) { return text(layer(r).tied_embeddings); }, Of::pp},
  };
}

/// How it is split over ranks.
std::vector<Column> split_columns() {
  return {
      {"tp", "ranks", "tensor-parallel degree", key, [](R r) { return text(r.result.tp()); }},
      {"cp", "ranks", "context-parallel degree", key, [](R r) { return text(context(r).cp.size); },
       Of::cp},
      {"cp_kind", "", "ring, ulysses, all-gather or hybrid; none at cp 1", key,
       [](R r) { return text(context(r).is_split() ? name_of(context(r).kind) : "none"); }, Of::cp},
      {"order", "", "which tokens a rank holds: contiguous, zigzag or striped", key,
       [](R r) { return text(name_of(context(r).order)); }, Of::cp},
      {"ulysses", "ranks", "ranks that exchange heads (hybrid: inside of the ring, or around it)",
       key, [](R r) { return text(context(r).ulysses_size()); }, Of::cp},
      {"ulysses_outer", "", "hybrid: those ranks are not neighbours", key,
       [](R r) { return text(context(r).ulysses_outer); }, Of::cp},
      {"sp", "", "sequence parallelism", key,
       [](R r) { return text(parallel(r).sequence_parallel); }},
      {"keep_gathered", "", "sequence parallelism keeps gathered inputs for backward", key,
       [](R r) { return text(parallel(r).keep_gathered); }, Of::tp},
      {"overlap", "", "communication of one part runs behind the compute of another", key,
       [](R r) { return text(parallel(r).overlap); }},
      {"overlap_chunks", "", "chunks of tokens; 1 without overlap", key,
       [](R r) { return text(parallel(r).chunks); }},
      {"head_chunks", "", "ulysses: chunks of heads; 1 without overlap", key,
       [](R r) { return text(context(r).head_chunks); }, Of::cp},
      {"gather_output", "", "linear-column: output columns gathered on every rank", key,
       [](R r) { return text(layer(r).gather_output); }, Of::tp},
      {"world_size", "ranks", "ranks of the launch", key,
       [](R r) { return text(r.result.world_size); }},
      {"group_size", "ranks", "ranks that communicate with each other", always,
       [](R r) { return text(r.result.num_ranks()); }},
      {"threads_per_rank", "", "compute threads of each rank", key,
       [](R r) { return text(r.result.threads_per_rank); }},
      {"replicated", "", "ranks beyond those of the row ran replicas (otherwise they idled)", key,
       [](R r) { return text(r.result.replicated); }},
      {"rank_scope", "", "whose time it is: max = the slowest rank's", always,
       [](R) { return text(std::string_view{"max"}); }},
  };
}

}  // namespace

std::vector<Column> identity_columns() {
  std::vector<Column> all = program_columns();
  for (Column& column : split_columns()) all.push_back(std::move(column));
  return all;
}

std::vector<Column> shape_columns() {
  return {
      {"batch", "sequences", "", key, [](R r) { return text(shape(r).batch); }, Of::layers},
      {"batch", "sequences", "of a micro-batch", key, [](R r) { return text(shape(r).batch); },
       Of::pp},
      {"seq", "tokens", "tokens of one sequence", key, [](R r) { return text(shape(r).seq); }},
      {"hidden", "", "hidden width", key, [](R r) { return text(shape(r).hidden); }},
      {"heads", "", "query heads", key, [](R r) { return text(shape(r).heads); }},
      {"kv_heads", "", "key and value heads", key, [](R r) { return text(shape(r).kv_heads); }},
      {"head_dim", "", "width of one head", key, [](R r) { return text(shape(r).head_dim); },
       Of::cp},
      {"ffn", "", "inner width of the MLP, or the linear's split width", key,
       [](R r) { return text(shape(r).ffn); }},
      {"layers", "", "blocks (op_or_block = model)", key, [](R r) { return text(shape(r).layers); },
       Of::models},
      {"vocab", "", "vocabulary, padded (op_or_block = model)", key,
       [](R r) { return text(shape(r).vocab); }, Of::models},
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
      {"window", "tokens", "a query sees keys less than this far away; 0: no limit", key,
       [](R r) { return text(shape(r).window); }, Of::cp},
      {"seqlens", "tokens", "packed sequences, joined by '+'; empty: one", key,
       [](R r) { return joined(shape(r).seqlens); }, Of::cp},
  };
}

std::vector<Column> quality_columns() {
  return {
      {"check", "",
       "pass, fail or skipped: comparison with the same block on one rank (with f64 at tp 1 or "
       "where "
       "the sequence is split)",
       always, [](R r) { return text(check_of(r)); }},
      {"check_mode", "", "off, reduced (smaller shape; always on one rank) or full", always,
       [](R r) { return r.run.machine.empty() ? text(name_of(r.result.check_mode)) : ""; }},
      {"check_exact", "", "a bitwise comparison on exact data was part of it", sampled,
       [](R r) { return text(r.result.check.exact); }, Of::layers},
      {"check_exact", "", "all was compared bitwise, on random data", sampled,
       [](R r) { return text(r.result.check.exact); }, Of::pp},
      {"max_abs_err", "", "largest difference of any element on random data", sampled,
       [](R r) { return text(r.result.check.max_abs_err); }},
      {"rel_norm_err", "", "largest norm(difference) / norm(expected) of any tensor", sampled,
       [](R r) { return text(r.result.check.rel_norm_err); }},
      {"tol", "", "limit of rel_norm_err", sampled,
       [](R r) { return text(r.result.check.tolerance); }},
      {"mem_peak_bytes", "bytes", "largest memory of one rank's tensors and workspace", measured,
       [](R r) { return text(r.result.mem_peak_bytes); }},
      {"mem_activation_bytes", "bytes", "activations of the rank with the most", measured,
       [](R r) { return text(busiest(r, &RankWork::activation_bytes)); }, Of::cp},
      {"mem_kv_bytes", "bytes",
       "all K and V that the attention of one rank reads, wherever they lie", measured,
       [](R r) { return text(busiest(r, &RankWork::kv_bytes)); }, Of::cp},
      {"mem_exchange_bytes", "bytes", "buffers of the exchange on one rank", measured,
       [](R r) { return text(busiest(r, &RankWork::exchange_bytes)); }, Of::cp},
      {"mem_predicted_bytes", "bytes",
       "the same as the record backend predicts it, without the scratch of --algorithm's plans",
       always,
       [](R r) {
         const std::int64_t bytes = r.result.mem_predicted_bytes;
         return bytes > 0 ? text(bytes) : std::string{};
       }},
      {"oversubscribed", "", "more compute threads than cores: do not compare with other rows",
       always, [](R r) { return text(r.result.oversubscribed); }},
      {"throttled_by", "",
       "why rank 0's GPU was slower than it could be after a sample; empty: nothing", sampled,
       [](R r) { return text(r.result.throttled_by); }},
      {"profiler_overhead_pct", "%", "profiled over unprofiled median of one session, minus 1",
       sampled, [](R r) { return text(r.result.profiler_overhead_pct()); }},
      {"source", "", "measured, or predicted for a machine that need not be there", key,
       [](R r) { return text(r.run.machine.empty() ? "measured" : "predicted"); }},
      {"machine", "", "name of the machine that it is predicted for", key,
       [](R r) { return text(r.run.machine); }},
      {"status", "", "ok, skipped or failed", always, [](R r) { return text(status_of(r)); }},
      {"reason", "", "why it was skipped or failed", always,
       [](R r) { return text(r.result.reason); }},
      {"verdict", "",
       "imbalanced, bubble_bound, communication_bound, latency_bound, memory_bound, "
       "compute_bound, or (predicted) does_not_fit: more memory than a rank of the machine has",
       measured, [](R r) { return text(r.result.verdict); }},
      {"verdict_reason", "", "the numbers behind it and one thing to try", measured,
       [](R r) { return text(r.result.verdict_reason); }},
  };
}

}  // namespace shardmark::bench
