#include "layers/inference_program.hpp"
#include "layers/parameters_internal.hpp"
#include "layers/volume.hpp"

namespace shardmark {
namespace {

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

}  // namespace

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
