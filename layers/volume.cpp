#include "layers/volume.hpp"

#include "core/error.hpp"
#include "layers/inference_program.hpp"
#include "layers/parameters_internal.hpp"
#include "layers/volume_internal.hpp"

namespace shardmark {
namespace {

/// Of a buffer, what a gather or scatter over tp moves across a rank's link.
double share(const LayerConfig& config) {
  const double t = config.parallel.tp.size;
  return (t - 1) / t;
}

}  // namespace

VolumeCounter::Payload VolumeCounter::tokens_hidden() const {
  return {as_double(config_.tokens()) * as_double(shape().hidden) * element(), "T*h*e"};
}

void VolumeCounter::column(const std::string& name) {
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

void VolumeCounter::row(const std::string& name) {
  if (!sp()) {
    if (forward_) reduce(name + " forward: all-reduce of the partial sums", tokens_hidden());
    return;
  }
  if (forward_) gather(name + " forward: reduce-scatter of the partial sums", tokens_hidden());
  if (backward_) gather(name + " backward: all-gather of the output gradient", tokens_hidden());
}

void VolumeCounter::gathered_output() {
  if (forward_ && config_.gather_output)
    gather("linear forward: all-gather of the output",
           {as_double(config_.tokens()) * as_double(shape().ffn) * element(), "T*ffn*e"});
}

void VolumeCounter::norm(const std::string& name) {
  const double vectors = num_norm_vectors(shape());
  if (sp() && backward_)
    once([&] {
      reduce(name + " backward: all-reduce of the norm's gradients",
             {vectors * as_double(shape().hidden) * 4, message(vectors, "*h*4")});
    });
}

void VolumeCounter::shared_heads() {
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

void VolumeCounter::attention() {
  column("qkv");
  attention_core();
  row("projection");
  shared_heads();
}

void VolumeCounter::mlp() {
  column("fc1");
  row("fc2");
}

void VolumeCounter::block(const std::string& prefix) {
  norm(prefix + "norm1");
  attention();
  norm(prefix + "norm2");
  mlp();
}

void VolumeCounter::block_again(std::int64_t layer) {
  VolumeCounter again{config_, Phase::forward};
  again.times_ = times_;
  again.block("");
  for (VolumeLine& line : again.lines_) {
    const std::string_view when = "forward: ";
    line.what.replace(line.what.find(when), when.size(), "recomputed in backward: ");
    line.what.insert(0, message("block", layer, ' '));
    lines_.push_back(std::move(line));
  }
}

void VolumeCounter::stage(const StageRange& range) {
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

void VolumeCounter::row_like_embedding() {
  row("embedding");
  if (shape().positions == Positions::learned && sp() && backward_)
    once([&] {
      reduce("positions backward: all-reduce of their gradients",
             {as_double(shape().seq) * as_double(shape().hidden) * 4, "s*h*4"});
    });
}

void VolumeCounter::weight_gradients() {
  if (!context().is_split() || !backward_) return;
  const double P = context().cp.size;
  const double elements = rank_parameters(config_);
  add("weights backward: all-reduce of their gradients over cp", 2 * (P - 1) / P * elements * 4,
      message("2(P-1)/P * parameters*4, P=", P, ", parameters=", elements));
}

void VolumeCounter::gather(const std::string& what, const Payload& payload) {
  add(what, share(config_) * payload.bytes, "(t-1)/t * " + payload.formula);
}

void VolumeCounter::reduce(const std::string& what, const Payload& payload) {
  add(what, 2 * share(config_) * payload.bytes, "2(t-1)/t * " + payload.formula);
}

void VolumeCounter::add(const std::string& what, double bytes, const std::string& formula) {
  if (bytes * times_ <= 0) return;
  lines_.push_back({what, times_ == 1 ? formula : message(times_, ' ', times_of_, " * ", formula),
                    times_ * bytes});
}

std::vector<VolumeLine> communication_volume(const LayerConfig& config, Phase phase) {
  if (config.inference) {
    const LayerConfig pass = pass_config(config);
    VolumeCounter counter{pass, Phase::forward};
    counter.inference();
    return counter.take();
  }
  VolumeCounter counter{config, phase};
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

}  // namespace shardmark
