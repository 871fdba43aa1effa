#include "bench/harness/shapes.hpp"

#include "core/error.hpp"
#include "layers/presets.hpp"

#include <algorithm>
#include <array>

namespace shardmark::bench {
namespace {

constexpr std::int64_t default_head_dim = 128;

/// Multiplies the combinations by the values of one list; an empty list leaves them as they are.
template <class Value, class Set>
void cross(std::vector<ShapeChoice>& choices, const std::vector<Value>& values, const Set& set) {
  if (values.empty()) return;
  std::vector<ShapeChoice> product;
  for (const ShapeChoice& choice : choices)
    for (const Value& value : values) {
      product.push_back(choice);
      set(product.back(), value);
    }
  choices = std::move(product);
}

template <class T>
void replace(T& value, const std::optional<T>& given) {
  if (given) value = *given;
}
void replace(std::int64_t& value, std::int64_t given) {
  if (given != 0) value = given;
}

}  // namespace

std::vector<ShapeChoice> shape_choices(const Options& options) {
  using C = ShapeChoice;
  std::vector<C> choices(1);
  cross(choices, options.models, [](C& c, const std::string& v) { c.model = v; });
  cross(choices, options.blocks, [](C& c, BlockKind v) { c.block = v; });
  cross(choices, options.dtypes, [](C& c, DType v) { c.dtype = v; });
  cross(choices, options.hidden, [](C& c, std::int64_t v) { c.hidden = v; });
  cross(choices, options.heads, [](C& c, std::int64_t v) { c.heads = v; });
  cross(choices, options.kv_heads, [](C& c, std::int64_t v) { c.kv_heads = v; });
  cross(choices, options.ffn, [](C& c, std::int64_t v) { c.ffn = v; });
  cross(choices, options.vocab, [](C& c, std::int64_t v) { c.vocab = v; });
  cross(choices, options.layers, [](C& c, std::int64_t v) { c.layers = v; });
  cross(choices, options.seq, [](C& c, std::int64_t v) { c.seq = v; });
  cross(choices, options.batch, [](C& c, std::int64_t v) { c.batch = v; });
  cross(choices, options.phases, [](C& c, Phase v) { c.phase = v; });
  return choices;
}

ModelShape shape_of(const Options& options, const ShapeChoice& choice, int tp) {
  ModelShape shape;
  const bool preset = !choice.model.empty();
  if (preset) {
    shape = find_model(choice.model).shape;
    replace(shape.hidden, choice.hidden);
    shape.vocab = padded_vocab(shape.vocab, tp);
  } else {
    replace(shape.hidden, choice.hidden);
    shape.ffn = 4 * shape.hidden;
  }
  replace(shape.vocab, choice.vocab);
  replace(shape.ffn, choice.ffn);
  replace(shape.layers, choice.layers);
  replace(shape.seq, choice.seq);
  replace(shape.batch, choice.batch);
  replace(shape.mlp, options.mlp);
  replace(shape.gelu, options.gelu);
  replace(shape.norm, options.norm);
  replace(shape.positions, options.positions);
  replace(shape.biases, options.biases);
  replace(shape.causal, options.causal);
  if (!preset) shape.heads = std::max<std::int64_t>(1, shape.hidden / default_head_dim);
  replace(shape.heads, choice.heads);
  shape.head_dim = std::max<std::int64_t>(1, shape.hidden / shape.heads);
  if (!preset) shape.kv_heads = shape.heads;
  replace(shape.kv_heads, choice.kv_heads);
  return shape;
}

void check_heads(const ShapeChoice& choice, const ModelShape& shape) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t heads = shape.heads;
  if (!has_attention(choice.block)) return;
  if (choice.heads == 0 && choice.model.empty() && hidden % default_head_dim != 0) {
    const std::int64_t below = hidden / default_head_dim * default_head_dim;
    throw InputError{message("hidden ", hidden, " is not a multiple of ", default_head_dim,
                             ", the default head width; try hidden ",
                             below > 0 ? message(below, " or ") : "", below + default_head_dim,
                             ", or give --heads")};
  }
  if (hidden % heads == 0) return;
  std::int64_t lower = std::min(heads, hidden);
  while (hidden % lower != 0) --lower;
  std::int64_t higher = std::min(heads, hidden);
  while (hidden % higher != 0) ++higher;
  throw InputError{message("hidden ", hidden, " is not divisible by heads ", heads, "; try heads ",
                           lower, higher > lower ? message(" or ", higher) : "")};
}

std::int64_t unpadded_vocab(const Options& options, const ShapeChoice& choice) {
  if (choice.vocab != 0) return choice.vocab;
  if (!choice.model.empty()) return find_model(choice.model).shape.vocab;
  return shape_of(options, choice, 1).vocab;
}

void check_magnitude(const LayerConfig& config) {
  constexpr double most_elements = 1e15;
  const ModelShape& shape = config.shape;
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const double tokens = d(shape.batch) * d(shape.seq);
  const double vocab = config.block == BlockKind::model ? d(shape.vocab) : 1;
  const double widest = std::max({3 * d(shape.hidden), 2 * d(shape.ffn), vocab});
  const double layers = config.block == BlockKind::model ? d(shape.layers) : 1;
  const double elements = std::max(tokens, d(shape.hidden)) * widest * layers;
  if (elements <= most_elements) return;
  throw InputError{message("hidden ", shape.hidden, ", ffn ", shape.ffn, ", seq ", shape.seq,
                           ", batch ", shape.batch, " make tensors of ", elements,
                           " elements; the limit is ", most_elements, "; lower one of them")};
}

}  // namespace shardmark::bench
