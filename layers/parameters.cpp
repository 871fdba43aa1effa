#include "layers/parameters_internal.hpp"

namespace shardmark {
namespace {

bool has_mlp(BlockKind block) {
  return block == BlockKind::mlp || block == BlockKind::block || block == BlockKind::model;
}
bool has_projections(BlockKind block) {
  return has_attention(block) && block != BlockKind::attention_core;
}
bool is_linear(BlockKind block) {
  return block == BlockKind::linear_column || block == BlockKind::linear_row;
}

}  // namespace

double num_norm_vectors(const ModelShape& shape) { return shape.norm == NormKind::layer ? 2 : 1; }

double num_blocks(const LayerConfig& config) {
  return config.block == BlockKind::model ? as_double(config.shape.layers) : 1.0;
}

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

}  // namespace shardmark
