#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/vector_math.hpp"

#include <cmath>

namespace shardmark::kernels {
namespace {

/// Elements of a row past its end must not count in a sum of squared differences.
SHARDMARK_INLINE inline Floats without_tail(Floats values, std::int64_t count) {
  if (count < width)
    for (std::int64_t i = count; i < width; ++i) values[i] = 0;
  return values;
}

SHARDMARK_CLONES void norm_rows(const Norm& op, std::int64_t first, std::int64_t last) {
  const std::int64_t cols = op.x.cols();
  const float inverse_cols = 1.0F / static_cast<float>(cols);
  const bool is_layer = op.kind == NormKind::layer;
  const bool has_bias = static_cast<bool>(op.bias);
  const Row gain = row_of(op.gain, 0);
  const Row bias = row_of(op.bias, 0);
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row y = row_of(op.y, r);
    float mean = 0;
    if (is_layer) {
      Floats total = splat(0);
      for_vectors(cols,
                  [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE { total += x.load(c, n); });
      mean = sum(total) * inverse_cols;
    }
    Floats squares = splat(0);
    for_vectors(cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats centred = without_tail(x.load(c, n) - mean, n);
      squares += centred * centred;
    });
    const float scale = 1.0F / std::sqrt(sum(squares) * inverse_cols + op.epsilon);
    for_vectors(cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      Floats value = (x.load(c, n) - mean) * scale * gain.load(c, n);
      if (has_bias) value += bias.load(c, n);
      y.store(c, n, value);
    });
    float* const stats = op.stats.as<float>() + r * op.stats.row_stride;
    stats[0] = mean;
    stats[1] = scale;
  }
}

SHARDMARK_CLONES void norm_backward_rows(const NormBackward& op, std::int64_t first,
                                         std::int64_t last) {
  const std::int64_t cols = op.x.cols();
  const float inverse_cols = 1.0F / static_cast<float>(cols);
  const bool is_layer = op.kind == NormKind::layer;
  const Row gain = row_of(op.gain, 0);
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row dy = row_of(op.dy, r);
    const Row dx = row_of(op.dx, r);
    const float* const stats = op.stats.as<float>() + r * op.stats.row_stride;
    const float mean = stats[0];
    const float scale = stats[1];
    Floats plain = splat(0);
    Floats projected = splat(0);
    for_vectors(cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats g = dy.load(c, n) * gain.load(c, n);  // 0 past the end
      plain += g;
      projected += g * ((x.load(c, n) - mean) * scale);
    });
    const float mean_g = is_layer ? sum(plain) * inverse_cols : 0.0F;
    const float mean_gx = sum(projected) * inverse_cols;
    for_vectors(cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats normalised = (x.load(c, n) - mean) * scale;
      const Floats g = dy.load(c, n) * gain.load(c, n);
      dx.store(c, n, scale * (g - mean_g - normalised * mean_gx));
    });
  }
}

/// Adds rows [first, last) of a column part to dgain and dbias.
SHARDMARK_CLONES void norm_parameter_part(const NormBackward& op, std::int64_t first,
                                          std::int64_t last, std::int64_t column,
                                          std::int64_t count) {
  const bool has_bias = static_cast<bool>(op.dbias);
  const Row dgain = row_of(op.dgain.as<float>() + column);
  const Row dbias = has_bias ? row_of(op.dbias.as<float>() + column) : Row{};
  if (first == 0 && !op.accumulate)
    for_vectors(count, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      dgain.store(c, n, splat(0));
      if (has_bias) dbias.store(c, n, splat(0));
    });
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r).from(column);
    const Row dy = row_of(op.dy, r).from(column);
    const float* const stats = op.stats.as<float>() + r * op.stats.row_stride;
    const float mean = stats[0];
    const float scale = stats[1];
    for_vectors(count, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats d = dy.load(c, n);
      dgain.store(c, n, dgain.load(c, n) + d * ((x.load(c, n) - mean) * scale));
      if (has_bias) dbias.store(c, n, dbias.load(c, n) + d);
    });
  }
}

}  // namespace

const char* run(const Norm& op, const Context& context) {
  for_rows(context, op.x.rows(), 3 * op.x.cols() * size_of(op.x.dtype),
           [&](std::int64_t first, std::int64_t last) { norm_rows(op, first, last); });
  return op.kind == NormKind::layer ? "shardmark_layer_norm" : "shardmark_rms_norm";
}

const char* run(const NormBackward& op, const Context& context) {
  // Few rows at a time: the second pass finds them in cache. Parameters first, as dx may be dy.
  constexpr std::int64_t rows_in_cache = 64;
  for (std::int64_t first = 0; first < op.x.rows(); first += rows_in_cache) {
    if (first > 0 && context.hook.wants_tiles()) context.hook.between_tiles();
    const std::int64_t last = std::min(op.x.rows(), first + rows_in_cache);
    for_column_parts(context.num_threads, op.x.cols(),
                     [&](std::int64_t column, std::int64_t count) {
                       norm_parameter_part(op, first, last, column, count);
                     });
    in_parallel(context.num_threads, last - first, [&](std::int64_t from, std::int64_t to) {
      norm_backward_rows(op, first + from, first + to);
    });
  }
  return op.kind == NormKind::layer ? "shardmark_layer_norm_bwd" : "shardmark_rms_norm_bwd";
}

}  // namespace shardmark::kernels
