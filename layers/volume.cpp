#include "layers/volume.hpp"

#include "core/error.hpp"
#include "layers/inference_program.hpp"
#include "layers/pipeline_program.hpp"
#include "layers/stage.hpp"

#include <algorithm>
#include <utility>

namespace shardmark {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

bool has_mlp(BlockKind block) {
  return block == BlockKind::mlp || block == BlockKind::block || block == BlockKind::model;
}
bool has_projections(BlockKind block) {
  return has_attention(block) && block != BlockKind::attention_core;
}
bool is_linear(BlockKind block) {
  return block == BlockKind::linear_column || block == BlockKind::linear_row;
}
double num_norm_vectors(const ModelShape& shape) { return shape.norm == NormKind::layer ? 2 : 1; }
double num_blocks(const LayerConfig& config) {
  return config.block == BlockKind::model ? as_double(config.shape.layers) : 1.0;
}

/// Elements of all weight matrices, over all ranks.
double matrix_elements(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const double h = as_double(shape.hidden), f = as_double(shape.ffn);
  double elements = 0;
  if (is_linear(config.block)) elements += h * f;
  if (has_projections(config.block))
    elements += h * (2 * as_double(shape.query_width()) + 2 * as_double(shape.kv_width()));
  if (has_mlp(config.block)) elements += h * f * (1 + as_double(shape.mlp_inputs()));
  elements *= num_blocks(config);
  if (config.block == BlockKind::model) elements += h * as_double(shape.vocab);
  return elements;
}

/// Elements of all weights of one rank whose gradients are summed over cp or dp; not for a model.
double rank_parameters(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const double tp = config.parallel.tp.size;
  const double h = as_double(shape.hidden), f = as_double(shape.ffn) / tp;
  const double bias = shape.biases ? 1 : 0;
  const auto column = [&](double columns) { return (h + bias) * columns; };
  const auto row = [&](double rows) { return (rows + bias) * h; };
  double elements = 0;
  if (config.block == BlockKind::linear_column) elements += column(f);
  if (config.block == BlockKind::linear_row) elements += row(f);
  if (has_projections(config.block)) {
    const double q = as_double(shape.query_width()) / tp;
    elements += column(q + 2 * as_double(config.local_kv_heads() * shape.head_dim)) + row(q);
  }
  if (has_mlp(config.block)) elements += column(as_double(shape.mlp_inputs()) * f) + row(f);
  if (config.block == BlockKind::block) elements += 2 * h * num_norm_vectors(shape);
  return elements;
}

/// The same of a stage of a pipeline.
double stage_parameters(LayerConfig config, const StageRange& range) {
  const ModelShape& shape = config.shape;
  const double h = as_double(shape.hidden);
  const double table = h * as_double(shape.vocab) / config.parallel.tp.size;
  config.block = BlockKind::block;
  double elements = as_double(range.last_block - range.first_block) * rank_parameters(config);
  if (range.has_embedding) elements += table;
  if (range.has_embedding && shape.positions == Positions::learned)
    elements += as_double(shape.seq) * h;
  if (range.has_head) elements += num_norm_vectors(shape) * h + table;
  return elements;
}

/// Forward passes, with logits of each sequence's last token only.
ModelFlops inference_flops(const LayerConfig& config) {
  const LayerConfig pass = pass_config(config);
  const ModelShape& shape = pass.shape;
  const double head = as_double(shape.hidden * shape.vocab);
  const double dense = 2 * (as_double(shape.tokens()) * (matrix_elements(pass) - head) +
                            as_double(shape.batch) * head);
  const Places keys = Places::all(pass.past + shape.seq);
  const Places queries = keys.slice(pass.past, shape.seq);
  const std::vector<std::int64_t> starts = shape.starts();
  const double per_pair = 4 * as_double(shape.batch * shape.query_width() * shape.layers);
  const double visible = visible_pairs({shape.causal, shape.window, starts}, queries, keys);
  const double passes = config.inference->num_passes();
  return {passes * (dense + per_pair * visible),
          passes * (dense + per_pair * as_double(queries.count() * keys.count()))};
}

/// Collects lines; knows t, S and which passes run.
class Counter {
 public:
  Counter(const LayerConfig& config, Phase phase)
      : config_{config}, forward_{phase != Phase::backward}, backward_{phase != Phase::forward} {}

  void column(const std::string& name) {
    if (sp()) {
      if (forward_) gather(name + " forward: all-gather of the input", tokens_hidden());
      if (backward_) {
        if (!config_.parallel.keep_gathered)
          gather(name + " backward: all-gather of the input again", tokens_hidden());
        gather(name + " backward: reduce-scatter of the input gradient", tokens_hidden());
      }
    } else if (backward_) {
      reduce(name + " backward: all-reduce of the input gradient", tokens_hidden());
    }
  }

  void row(const std::string& name) {
    if (!sp()) {
      if (forward_) reduce(name + " forward: all-reduce of the partial sums", tokens_hidden());
      return;
    }
    if (forward_) gather(name + " forward: reduce-scatter of the partial sums", tokens_hidden());
    if (backward_) gather(name + " backward: all-gather of the output gradient", tokens_hidden());
  }

  void gathered_output() {
    if (forward_ && config_.gather_output)
      gather("linear forward: all-gather of the output",
             {as_double(config_.tokens()) * as_double(shape().ffn) * element(), "T*ffn*e"});
  }

  void norm(const std::string& name) {
    const double vectors = num_norm_vectors(shape());
    if (sp() && backward_)
      once([&] {
        reduce(name + " backward: all-reduce of the norm's gradients",
               {vectors * as_double(shape().hidden) * 4, message(vectors, "*h*4")});
      });
  }

  void shared_heads() {
    const std::int64_t sharers = config_.parallel.tp.size / shape().kv_heads;
    if (sharers <= 1 || !backward_) return;
    const double rows = as_double(shape().hidden) + (shape().biases ? 1 : 0);
    const double bytes = rows * 2 * as_double(shape().head_dim) * 4;
    once([&] {
      add("qkv backward: all-reduce of replicated KV heads' gradients",
          2.0 * as_double(sharers - 1) / as_double(sharers) * bytes,
          message("2(m-1)/m * rows*2d*4, m=", sharers));
    });
  }

  void attention() {
    column("qkv");
    attention_core();
    row("projection");
    shared_heads();
  }

  /// What ContextKind exchanges.
  void attention_core() {
    if (!context().is_split()) return;
    if (context().ulysses_size() > 1) exchange_heads();
    if (context().ring_group().size > 1) exchange_keys();
  }

  void weight_gradients() {
    if (!context().is_split() || !backward_) return;
    const double P = context().cp.size;
    const double elements = rank_parameters(config_);
    add("weights backward: all-reduce of their gradients over cp", 2 * (P - 1) / P * elements * 4,
        message("2(P-1)/P * parameters*4, P=", P, ", parameters=", elements));
  }
  void mlp() {
    column("fc1");
    row("fc2");
  }
  void block(const std::string& prefix) {
    norm(prefix + "norm1");
    attention();
    norm(prefix + "norm2");
    mlp();
  }

  /// The forward pass that backward begins with where it recomputes blocks.
  void block_again(std::int64_t layer) {
    Counter again{config_, Phase::forward};
    again.times_ = times_;
    again.block("");
    for (VolumeLine& line : again.lines_) {
      const std::string_view when = "forward: ";
      line.what.replace(line.what.find(when), when.size(), "recomputed in backward: ");
      line.what.insert(0, message("block", layer, ' '));
      lines_.push_back(std::move(line));
    }
  }

  /// The tensor-parallel part of a model or of a stage of it.
  void stage(const StageRange& range) {
    if (range.has_embedding) row_like_embedding();
    for (std::int64_t layer = range.first_block; layer < range.last_block; ++layer) {
      block(message("block", layer, ' '));
      if (config_.recompute == Recompute::full && backward_) block_again(layer);
    }
    if (!range.has_head) return;
    norm("final_norm");
    column("logits");
    if (forward_) {
      const double tokens = as_double(shape().tokens());
      reduce("loss forward: all-reduce of the maxima", {tokens * 4, "T*4"});
      reduce("loss forward: all-reduce of the sums", {tokens * 8, "T*8"});
    }
  }

  /// Everything that this rank of a pipeline communicates.
  void pipeline() {
    const pipeline::Schedule& schedule = *config_.pipeline.schedule;
    const int me = config_.parallel.pp.position;
    const auto is_here = [&](int stage, int micro) { return schedule.rank_of(stage, micro) == me; };
    for (const int s : schedule.stages_of(me)) {
      int here = 0, up = 0, down = 0;  // micro-batches that the stage has, passes on, passes back
      for (int micro = 0; micro < schedule.num_micro; ++micro) {
        if (!is_here(s, micro)) continue;
        ++here;
        if (s + 1 < schedule.num_stages && !is_here(s + 1, micro)) ++up;
        if (s > 0 && !is_here(s - 1, micro)) ++down;
      }
      times_ = here;
      stage(stage_range(config_, s));
      weights_apart(s);
      const auto [bytes, formula] = boundary();
      times_ = up;
      if (forward_) add(message("stage ", s, " forward: result to the next stage"), bytes, formula);
      times_ = down;
      if (backward_)
        add(message("stage ", s, " backward: gradient to the stage before"), bytes, formula);
      times_ = 1;
      sum_gradients(s);
    }
    sum_tied();
  }

  /// Under SP row-parallel layers gather their output's gradient for I, and again for a W apart.
  void weights_apart(int s) {
    if (!sp() || !backward_) return;
    times_ = 0;
    const auto me = static_cast<std::size_t>(config_.parallel.pp.position);
    for (const pipeline::Step& step : config_.pipeline.schedule->ranks[me])
      pipeline::for_each_action(step, [&](const pipeline::Action& action) {
        times_ += action.act == pipeline::Act::W && action.stage == s;
      });
    const double num_gathers = 2 * as_double(config_.pipeline.blocks[static_cast<std::size_t>(s)]);
    gather(message("stage ", s, " weights apart: all-gather of output gradients again"),
           {num_gathers * tokens_hidden().bytes, message(num_gathers, "*T*h*e")});
  }

  /// Everything that this rank communicates in inference. T is of a pass.
  void inference() {
    const int stage_number = config_.parallel.pp.position, pp = config_.parallel.pp.size;
    times_ = config_.inference->num_passes();
    times_of_ = "passes";
    StageRange range = stage_range(config_, stage_number);
    const bool has_head = std::exchange(range.has_head, false);
    stage(range);
    const double per_sequence = as_double(shape().batch) * 4;
    const auto [bytes, formula] = tokens_hidden();
    if (has_head) reduce("logits forward: all-reduce of the maxima", {per_sequence, "b*4"});
    if (has_head && pp > 1) add("token to the first stage", per_sequence, "b*4");
    if (!has_head)
      add(message("stage ", stage_number, " forward: result to the next stage"), bytes, formula);
  }

  [[nodiscard]] std::vector<VolumeLine> take() { return std::move(lines_); }

 private:
  struct Payload {
    double bytes;
    std::string formula;
  };
  [[nodiscard]] const ModelShape& shape() const { return config_.shape; }
  [[nodiscard]] bool sp() const { return config_.parallel.sequence_parallel; }
  [[nodiscard]] double element() const { return as_double(size_of(config_.dtype)); }
  [[nodiscard]] Payload tokens_hidden() const {
    return {as_double(config_.tokens()) * as_double(shape().hidden) * element(), "T*h*e"};
  }
  /// What one stage passes to the next: under SP a rank's own tokens.
  [[nodiscard]] Payload boundary() const {
    auto [bytes, formula] = tokens_hidden();
    if (!sp()) return {bytes, formula};
    return {bytes / config_.parallel.tp.size, formula + "/t"};
  }
  [[nodiscard]] const ContextParallel& context() const { return config_.parallel.context; }

  /// What an iteration of a pipeline does once, not for every micro-batch.
  template <class Lines>
  void once(const Lines& lines) {
    const int times = std::exchange(times_, 1);
    lines();
    times_ = times;
  }

  void exchange_heads() {
    const double u = context().ulysses_size(), tokens = as_double(config_.tokens());
    const double d = as_double(shape().head_dim);
    const double q = as_double(shape().heads / config_.parallel.tp.size) * d;
    const double kv = std::max(as_double(config_.local_kv_heads()), u) * d;
    const auto line = [&](const std::string& what, double columns, const char* formula) {
      add(what, (u - 1) / u * tokens * columns * element(),
          message("(u-1)/u * ", formula, "*e, u=", u, ", T=", tokens, ", q=", q,
                  ", kv=max(kv_heads,u)*d=", kv));
    };
    if (forward_) {
      line("attention forward: all-to-all of q, k, v", q + 2 * kv, "T*(q+2kv)");
      line("attention forward: all-to-all of o", q, "T*q");
    }
    if (backward_) {
      line("attention backward: all-to-all of o's gradient", q, "T*q");
      line("attention backward: all-to-all of q's, k's, v's gradients", q + 2 * kv, "T*(q+2kv)");
    }
  }

  /// K and V of all ranks around the ring, or gathered.
  void exchange_keys() {
    const bool gathers = context().kind == ContextKind::all_gather;
    if (!gathers && skips_parts()) return exchange_keys_of_plan();
    const double P = context().ring_group().size;
    const double heads =
        as_double(std::max<std::int64_t>(1, config_.local_kv_heads() / context().ulysses_size()));
    const double columns = heads * as_double(shape().head_dim);
    const double rows = as_double(shape().batch * shape().seq);
    const auto line = [&](const std::string& what, double bytes, const char* e) {
      add(what, 2 * (P - 1) / P * rows * columns * bytes,
          message("2(P-1)/P * b*s*kv*", e, ", P=", P, ", b*s=", rows, ", kv=", columns));
    };
    const std::string how = gathers ? "all-gather of k and v" : "ring of k and v";
    if (forward_) line("attention forward: " + how, element(), "e");
    if (!backward_) return;
    if (!gathers) line("attention backward: " + how + " again", element(), "e");
    line(message("attention backward: ", gathers ? "reduce-scatter" : "ring",
                 " of k's and v's gradients"),
         4, "4");
  }

  /// Masks that let a ring send less than everything to everybody.
  [[nodiscard]] bool skips_parts() const {
    if (shape().window > 0 || !shape().seqlens.empty()) return true;
    // Of the balanced orders every part has keys that every rank needs, if it has more than a few.
    const bool balanced =
        context().order == TokenOrder::zigzag ||
        (context().order == TokenOrder::striped && shape().seq > context().ring_group().size);
    return shape().causal && !balanced;
  }

  void exchange_keys_of_plan() {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      if (phase == Phase::forward ? !forward_ : !backward_) continue;
      double bytes = 0;
      for (const OpRecord& record : record_program(config_, phase, 1).ops)
        if (std::holds_alternative<SendRecv>(record.op)) bytes += bytes_sent_of(record.op);
      add(message("attention ", phase == Phase::forward ? "forward" : "backward",
                  ": ring of k and v", phase == Phase::forward ? "" : " and of their gradients"),
          bytes, "counted from the plan: parts go only as far as the masks let somebody see them");
    }
  }

  /// Over the ranks that hold the same stage, in this copy of the model and in the others.
  void sum_gradients(int s) {
    if (!backward_) return;
    const double elements = stage_parameters(config_, stage_range(config_, s));
    const auto line = [&](const Group& group, std::string_view over) {
      const double n = group.size;
      add(message("stage ", s, " gradients: all-reduce over ", over),
          2 * (n - 1) / n * elements * 4,
          message("2(n-1)/n * parameters*4, n=", n, ", parameters=", elements));
    };
    line(copies_of(config_, s), "the two ranks of DualPipe");
    line(config_.parallel.dp, "dp");
  }

  void sum_tied() {
    const double n = ends_of_tie(config_).size;
    if (!config_.tied_embeddings || !backward_ || n == 1) return;
    const double table = as_double(shape().hidden) * as_double(shape().vocab);
    add("tied embeddings: all-reduce of their gradient over the first and last stage",
        2 * (n - 1) / n * table / config_.parallel.tp.size * 4, "2(n-1)/n * h*V/t*4, n=2");
  }

  [[nodiscard]] double share() const {
    const double t = config_.parallel.tp.size;
    return (t - 1) / t;
  }
  void row_like_embedding() {
    row("embedding");
    if (shape().positions == Positions::learned && sp() && backward_)
      once([&] {
        reduce("positions backward: all-reduce of their gradients",
               {as_double(shape().seq) * as_double(shape().hidden) * 4, "s*h*4"});
      });
  }
  void gather(const std::string& what, const Payload& payload) {
    add(what, share() * payload.bytes, "(t-1)/t * " + payload.formula);
  }
  void reduce(const std::string& what, const Payload& payload) {
    add(what, 2 * share() * payload.bytes, "2(t-1)/t * " + payload.formula);
  }
  void add(const std::string& what, double bytes, const std::string& formula) {
    if (bytes * times_ <= 0) return;
    lines_.push_back({what, times_ == 1 ? formula : message(times_, ' ', times_of_, " * ", formula),
                      times_ * bytes});
  }

  const LayerConfig& config_;
  bool forward_, backward_;
  int times_{1};  ///< micro-batches or passes that do what is added
  std::string_view times_of_{"micro-batches"};
  std::vector<VolumeLine> lines_;
};

}  // namespace

std::vector<VolumeLine> communication_volume(const LayerConfig& config, Phase phase) {
  if (config.inference) {
    const LayerConfig pass = pass_config(config);
    Counter counter{pass, Phase::forward};
    counter.inference();
    return counter.take();
  }
  Counter counter{config, phase};
  switch (config.block) {
    case BlockKind::linear_column:
      counter.column("linear");
      counter.gathered_output();
      break;
    case BlockKind::linear_row:
      counter.row("linear");
      break;
    case BlockKind::mlp:
      counter.mlp();
      break;
    case BlockKind::attention:
      counter.attention();
      break;
    case BlockKind::block:
      counter.block("");
      break;
    case BlockKind::model:
      if (config.is_pipeline())
        counter.pipeline();
      else
        counter.stage(whole_model(config));
      break;
    case BlockKind::attention_core:
      counter.attention_core();
      break;
  }
  counter.weight_gradients();
  return counter.take();
}

double total_bytes(const std::vector<VolumeLine>& lines) {
  double bytes = 0;
  for (const VolumeLine& line : lines) bytes += line.bytes;
  return bytes;
}

ModelFlops model_flops(const LayerConfig& config, Phase phase) {
  if (config.inference) return inference_flops(config);
  const ModelShape& shape = config.shape;
  const double tokens = as_double(shape.tokens() * config.num_micro());
  const double dense = 2 * tokens * matrix_elements(config);
  const double pass = phase == Phase::forward ? 1 : phase == Phase::backward ? 2 : 3;
  if (!has_attention(config.block)) return {pass * dense, pass * dense};
  const double per_key = 4 * tokens * as_double(shape.query_width()) * num_blocks(config);
  const std::vector<std::int64_t> starts = shape.starts();
  const Places all = Places::all(shape.seq);
  const double pairs = visible_pairs({shape.causal, shape.window, starts}, all, all);
  const double causal = per_key / as_double(shape.seq) * pairs;
  return {pass * (dense + causal), pass * (dense + per_key * as_double(shape.seq))};
}

double matmul_parameters(const LayerConfig& config) {
  return matrix_elements(config) / config.parallel.tp.size;
}

}  // namespace shardmark
