#include "layers/volume.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

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
             {as_double(shape().tokens()) * as_double(shape().ffn) * element(), "T*ffn*e"});
  }

  void norm(const std::string& name) {
    const double vectors = shape().norm == NormKind::layer ? 2 : 1;
    if (sp() && backward_)
      reduce(name + " backward: all-reduce of the norm's gradients",
             {vectors * as_double(shape().hidden) * 4, message(vectors, "*h*4")});
  }

  void shared_heads() {
    const std::int64_t sharers = config_.parallel.tp.size / shape().kv_heads;
    if (sharers <= 1 || !backward_) return;
    const double rows = as_double(shape().hidden) + (shape().biases ? 1 : 0);
    const double bytes = rows * 2 * as_double(shape().head_dim) * 4;
    add("qkv backward: all-reduce of replicated KV heads' gradients",
        2.0 * as_double(sharers - 1) / as_double(sharers) * bytes,
        message("2(m-1)/m * rows*2d*4, m=", sharers));
  }

  void attention() {
    column("qkv");
    row("projection");
    shared_heads();
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

  void model() {
    row_like_embedding();
    for (std::int64_t layer = 0; layer < shape().layers; ++layer)
      block(message("block", layer, ' '));
    norm("final_norm");
    column("logits");
    if (forward_) {
      const double tokens = as_double(shape().tokens());
      reduce("loss forward: all-reduce of the maxima", {tokens * 4, "T*4"});
      reduce("loss forward: all-reduce of the sums", {tokens * 8, "T*8"});
    }
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
    return {as_double(shape().tokens()) * as_double(shape().hidden) * element(), "T*h*e"};
  }
  [[nodiscard]] double share() const {
    const double t = config_.parallel.tp.size;
    return (t - 1) / t;
  }
  void row_like_embedding() {
    row("embedding");
    if (shape().positions == Positions::learned && sp() && backward_)
      reduce("positions backward: all-reduce of their gradients",
             {as_double(shape().seq) * as_double(shape().hidden) * 4, "s*h*4"});
  }
  void gather(const std::string& what, const Payload& payload) {
    add(what, share() * payload.bytes, "(t-1)/t * " + payload.formula);
  }
  void reduce(const std::string& what, const Payload& payload) {
    add(what, 2 * share() * payload.bytes, "2(t-1)/t * " + payload.formula);
  }
  void add(const std::string& what, double bytes, const std::string& formula) {
    if (bytes > 0) lines_.push_back({what, formula, bytes});
  }

  const LayerConfig& config_;
  bool forward_, backward_;
  std::vector<VolumeLine> lines_;
};

bool has_attention(BlockKind block) {
  return block == BlockKind::attention || block == BlockKind::block || block == BlockKind::model;
}
bool has_mlp(BlockKind block) {
  return block == BlockKind::mlp || block == BlockKind::block || block == BlockKind::model;
}
bool is_linear(BlockKind block) {
  return block == BlockKind::linear_column || block == BlockKind::linear_row;
}
double num_blocks(const LayerConfig& config) {
  return config.block == BlockKind::model ? as_double(config.shape.layers) : 1.0;
}

/// Elements of all weight matrices, over all ranks.
double matrix_elements(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const double h = as_double(shape.hidden), f = as_double(shape.ffn);
  double elements = 0;
  if (is_linear(config.block)) elements += h * f;
  if (has_attention(config.block))
    elements += h * (2 * as_double(shape.query_width()) + 2 * as_double(shape.kv_width()));
  if (has_mlp(config.block)) elements += h * f * (1 + as_double(shape.mlp_inputs()));
  elements *= num_blocks(config);
  if (config.block == BlockKind::model) elements += h * as_double(shape.vocab);
  return elements;
}

}  // namespace

std::vector<VolumeLine> communication_volume(const LayerConfig& config, Phase phase) {
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
      counter.model();
      break;
    case BlockKind::attention_core:
      break;
  }
  return counter.take();
}

double total_bytes(const std::vector<VolumeLine>& lines) {
  double bytes = 0;
  for (const VolumeLine& line : lines) bytes += line.bytes;
  return bytes;
}

ModelFlops model_flops(const LayerConfig& config, Phase phase) {
  const ModelShape& shape = config.shape;
  const double tokens = as_double(shape.tokens());
  const double dense = 2 * tokens * matrix_elements(config);
  const double pass = phase == Phase::forward ? 1 : phase == Phase::backward ? 2 : 3;
  if (!has_attention(config.block)) return {pass * dense, pass * dense};
  const double per_key = 4 * tokens * as_double(shape.query_width()) * num_blocks(config);
  const double full = per_key * as_double(shape.seq);
  const double causal = shape.causal ? per_key * (as_double(shape.seq) + 1) / 2 : full;
  return {pass * (dense + causal), pass * (dense + full)};
}

double matmul_parameters(const LayerConfig& config) {
  return matrix_elements(config) / config.parallel.tp.size;
}

}  // namespace shardmark
