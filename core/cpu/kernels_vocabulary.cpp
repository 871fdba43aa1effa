#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/vector_math.hpp"
#include "core/error.hpp"

#include <cmath>

namespace shardmark::kernels {
namespace {

constexpr float infinity = __builtin_inff();

/// One value per token, whatever the shape: the kernels step through them one by one.
void check_consecutive(const char* what, const Tensor& tensor) {
  SHARDMARK_CHECK(tensor.contiguous(), what, " must be contiguous");
}
/// Row 1 of the 2 x T partials, which may be a column block or a flat vector.
float* second_row(const Tensor& partials, std::int64_t tokens) {
  return partials.as<float>() + (partials.rows() == 2 ? partials.row_stride : tokens);
}

SHARDMARK_CLONES void embedding_rows(const Embedding& op, std::int64_t first, std::int64_t last) {
  const auto* const ids = op.ids.as<std::int32_t>();
  for (std::int64_t r = first; r < last; ++r) {
    const std::int64_t local = ids[r] - op.first_row;
    const bool is_here = local >= 0 && local < op.table.rows();
    if (!is_here && op.accumulate) continue;
    const Row y = row_of(op.y, r);
    const Row table = row_of(op.table, is_here ? local : 0);
    for_vectors(op.y.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      Floats value = is_here ? table.load(c, n) : splat(0);
      if (op.accumulate) value += y.load(c, n);
      y.store(c, n, value);
    });
  }
}

SHARDMARK_CLONES void clear_rows(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row row = row_of(tensor, r);
    for_vectors(tensor.cols(), [&](std::int64_t c, std::int64_t n)
                                   SHARDMARK_INLINE { row.store(c, n, splat(0)); });
  }
}

/// Adds the gradients of tokens [first, last), one part of the columns, to their table rows.
SHARDMARK_CLONES void scatter_part(const EmbeddingBackward& op, std::int64_t first,
                                   std::int64_t last, std::int64_t column, std::int64_t count) {
  const auto* const ids = op.ids.as<std::int32_t>();
  for (std::int64_t r = first; r < last; ++r) {
    const std::int64_t local = ids[r] - op.first_row;
    if (local < 0 || local >= op.dtable.rows()) continue;
    const Row table = row_of(op.dtable, local).from(column);
    const Row dy = row_of(op.dy, r).from(column);
    for_vectors(count, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      table.store(c, n, table.load(c, n) + dy.load(c, n));
    });
  }
}

SHARDMARK_CLONES void row_max_rows(const RowMax& op, std::int64_t first, std::int64_t last) {
  auto* const result = op.maximum.as<float>();
  for (std::int64_t r = first; r < last; ++r) {
    const Row logits = row_of(op.logits, r);
    Floats most = splat(-infinity);
    for_vectors(op.logits.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      most = larger(most, logits.load(c, n, -infinity));
    });
    result[r] = maximum(most);
  }
}

SHARDMARK_CLONES void cross_entropy_sum_rows(const CrossEntropySum& op, std::int64_t first,
                                             std::int64_t last) {
  const auto* const most = op.maximum.as<float>();
  const auto* const targets = op.targets.as<std::int32_t>();
  auto* const sums = op.partials.as<float>();
  float* const target_logits = second_row(op.partials, op.logits.rows());
  for (std::int64_t r = first; r < last; ++r) {
    const Row logits = row_of(op.logits, r);
    Floats total = splat(0);
    for_vectors(op.logits.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      total += exp(logits.load(c, n, -infinity) - most[r]);
    });
    sums[r] = sum(total);
    const std::int64_t target = targets[r] - op.first_column;
    const bool is_here = target >= 0 && target < op.logits.cols();
    target_logits[r] = is_here ? logits.load(target, 1)[0] : 0.0F;
  }
}

SHARDMARK_CLONES void cross_entropy_backward_rows(const CrossEntropyBackward& op,
                                                  std::int64_t first, std::int64_t last) {
  const auto* const most = op.maximum.as<float>();
  const auto* const targets = op.targets.as<std::int32_t>();
  const auto* const sums = op.partials.as<float>();
  for (std::int64_t r = first; r < last; ++r) {
    const Row logits = row_of(op.logits, r);
    const Row dlogits = row_of(op.dlogits, r);
    const float inverse = 1.0F / sums[r];
    const std::int64_t target = targets[r] - op.first_column;
    for_vectors(op.logits.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      Floats value = exp(logits.load(c, n) - most[r]) * inverse;
      if (target >= c && target < c + n) value[target - c] -= 1.0F;
      dlogits.store(c, n, value * op.scale);
    });
  }
}

std::int64_t row_bytes(const Tensor& tensor) { return tensor.cols() * size_of(tensor.dtype); }

}  // namespace

const char* run(const Embedding& op, const Context& context) {
  check_consecutive("embedding ids", op.ids);
  for_rows(context, op.y.rows(), 2 * row_bytes(op.y),
           [&](std::int64_t first, std::int64_t last) { embedding_rows(op, first, last); });
  return "shardmark_embedding";
}

const char* run(const EmbeddingBackward& op, const Context& context) {
  check_consecutive("embedding ids", op.ids);
  if (!op.accumulate)
    for_rows(context, op.dtable.rows(), row_bytes(op.dtable),
             [&](std::int64_t first, std::int64_t last) { clear_rows(op.dtable, first, last); });
  for_column_parts_of_rows(
      context, op.dy,
      [&](std::int64_t first, std::int64_t last, std::int64_t column, std::int64_t count) {
        scatter_part(op, first, last, column, count);
      });
  return "shardmark_embedding_bwd";
}

const char* run(const RowMax& op, const Context& context) {
  check_consecutive("row maxima", op.maximum);
  for_rows(context, op.logits.rows(), row_bytes(op.logits),
           [&](std::int64_t first, std::int64_t last) { row_max_rows(op, first, last); });
  return "shardmark_row_max";
}

const char* run(const CrossEntropySum& op, const Context& context) {
  check_consecutive("row maxima", op.maximum);
  check_consecutive("targets", op.targets);
  for_rows(context, op.logits.rows(), 2 * row_bytes(op.logits),
           [&](std::int64_t first, std::int64_t last) { cross_entropy_sum_rows(op, first, last); });
  return "shardmark_cross_entropy_sum";
}

const char* run(const CrossEntropyLoss& op, const Context&) {
  check_consecutive("row maxima", op.maximum);
  check_consecutive("losses", op.loss);
  const auto* const most = op.maximum.as<float>();
  auto* const loss = op.loss.as<float>();
  const auto* const sums = op.partials.as<float>();
  const float* const target_logits = second_row(op.partials, op.loss.numel());
  for (std::int64_t t = 0; t < op.loss.numel(); ++t)
    loss[t] = std::log(sums[t]) + most[t] - target_logits[t];
  return "shardmark_cross_entropy_loss";
}

const char* run(const CrossEntropyBackward& op, const Context& context) {
  check_consecutive("row maxima", op.maximum);
  check_consecutive("targets", op.targets);
  for_rows(
      context, op.logits.rows(), 3 * row_bytes(op.logits),
      [&](std::int64_t first, std::int64_t last) { cross_entropy_backward_rows(op, first, last); });
  return "shardmark_cross_entropy_bwd";
}

}  // namespace shardmark::kernels
