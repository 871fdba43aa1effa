#include "core/cpu/attention_blocks.hpp"

#include "core/cpu/vector_math.hpp"

#include <cmath>

namespace shardmark::kernels {
namespace {

constexpr float nothing = -__builtin_inff();

/// What scores are taken relative to: a row of nothing but -inf gives exp(-inf) = 0, not NaN.
SHARDMARK_INLINE inline float pivot(float logarithm) {
  return logarithm == nothing ? 0.0F : logarithm;
}

SHARDMARK_INLINE inline Row row_of(const float* data) {
  return kernels::row_of(const_cast<float*>(data));
}

SHARDMARK_INLINE inline void clear(const Row& row, std::int64_t first, std::int64_t last) {
  const Row part = row.from(first);
  for_vectors(last - first,
              [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE { part.store(c, n, splat(0)); });
}

SHARDMARK_INLINE inline void multiply(const Row& row, std::int64_t count, float factor) {
  for_vectors(count, [&](std::int64_t c, std::int64_t n)
                         SHARDMARK_INLINE { row.store(c, n, row.load(c, n) * factor); });
}

}  // namespace

SHARDMARK_CLONES void gather_head(const Tensor& from, std::int64_t token, std::int64_t head,
                                  std::int64_t rows, std::int64_t head_dim, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row x = row_of(from, token + r).from(head * head_dim);
    const Row y = row_of(to + r * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n)
                              SHARDMARK_INLINE { y.store(c, n, x.load(c, n)); });
  }
}
SHARDMARK_CLONES void scatter_head(const float* from, const Tensor& to, std::int64_t token,
                                   std::int64_t head, std::int64_t rows, std::int64_t head_dim) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row x = row_of(from + r * head_dim);
    const Row y = row_of(to, token + r).from(head * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n)
                              SHARDMARK_INLINE { y.store(c, n, x.load(c, n)); });
  }
}
SHARDMARK_CLONES void add_rows(const float* from, std::int64_t rows, std::int64_t head_dim,
                               float* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row x = row_of(from + r * head_dim);
    const Row y = kernels::row_of(to + r * stride);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n)
                              SHARDMARK_INLINE { y.store(c, n, y.load(c, n) + x.load(c, n)); });
  }
}
SHARDMARK_CLONES bool is_finite(const Tensor& x, std::int64_t token, std::int64_t head,
                                std::int64_t rows, std::int64_t head_dim) {
  Floats total = splat(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row row = row_of(x, token + r).from(head * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats values = row.load(c, n);
      total += values - values;
    });
  }
  return sum(total) == 0;
}

KeyRange seen_by(const KeyRange* ranges, std::int64_t rows) {
  KeyRange hull{0, 0};
  for (std::int64_t r = 0; r < rows; ++r) {
    if (ranges[r].count() == 0) continue;
    if (hull.count() == 0) hull = ranges[r];
    hull = {std::min(hull.first, ranges[r].first), std::max(hull.last, ranges[r].last)};
  }
  return hull;
}

Block block_of(const KeyRange* ranges, std::int64_t query, std::int64_t rows, KeyRange keys) {
  const auto misses = [&](std::int64_t row) {
    return std::max(ranges[row].first, keys.first) >= std::min(ranges[row].last, keys.last);
  };
  std::int64_t end = query + rows;
  while (query < end && misses(query)) ++query;
  while (query < end && misses(end - 1)) --end;
  const KeyRange seen = seen_by(ranges + query, end - query);
  keys = {std::max(keys.first, seen.first), std::min(keys.last, seen.last)};
  const bool whole = std::all_of(ranges + query, ranges + end, [&](const KeyRange& range) {
    return range.first <= keys.first && keys.last <= range.last;
  });
  return {query, end - query, keys.first, keys.count(), ranges + query, whole};
}

SHARDMARK_CLONES void start_rows(const Online& state, std::int64_t rows, std::int64_t head_dim) {
  std::fill_n(state.most, rows, nothing);
  std::fill_n(state.total, rows, 0.0F);
  std::fill_n(state.output, rows * head_dim, 0.0F);
}
SHARDMARK_CLONES void resume_rows(const Online& state, std::int64_t rows, const float* lse) {
  for (std::int64_t r = 0; r < rows; ++r) {
    state.most[r] = lse[r];
    state.total[r] = lse[r] == nothing ? 0.0F : 1.0F;
  }
}

SHARDMARK_CLONES void online_softmax(const Block& b, float* scores, const Online& state,
                                     std::int64_t head_dim) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row row = row_of(scores + r * b.cols);
    const KeyRange visible = b.visible_in(r);
    const Row seen = row.from(visible.first);
    Floats highest = splat(state.most[r]);
    for_vectors(visible.count(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      highest = larger(highest, seen.load(c, n, nothing));
    });
    const float most = maximum(highest);
    const float shift = pivot(most);
    Floats total = splat(0);
    for_vectors(visible.count(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats p = exp(seen.load(c, n, nothing) - shift);
      total += p;
      seen.store(c, n, p);
    });
    clear(row, 0, visible.first);
    clear(row, visible.last, b.cols);
    const float rescale = exp(splat(state.most[r] - shift))[0];
    state.total[r] = state.total[r] * rescale + sum(total);
    state.most[r] = most;
    if (rescale != 1.0F) multiply(row_of(state.output + r * head_dim), head_dim, rescale);
  }
}

SHARDMARK_CLONES void finish_rows(const Online& state, std::int64_t rows, std::int64_t head_dim,
                                  float* lse) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool empty = state.total[r] == 0.0F;
    multiply(row_of(state.output + r * head_dim), head_dim, empty ? 0.0F : 1.0F / state.total[r]);
    lse[r] = empty ? nothing : state.most[r] + std::log(state.total[r]);
  }
}

SHARDMARK_CLONES void recompute_softmax(const Block& b, float* scores, const float* lse) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row row = row_of(scores + r * b.cols);
    const KeyRange visible = b.visible_in(r);
    const Row seen = row.from(visible.first);
    const float shift = pivot(lse[r]);
    for_vectors(visible.count(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      // Rounding of a large lse must not make a probability above 1.
      const Floats x = seen.load(c, n) - shift;
      seen.store(c, n, exp(x > 0 ? splat(0) : x));
    });
    clear(row, 0, visible.first);
    clear(row, visible.last, b.cols);
  }
}

SHARDMARK_CLONES void softmax_gradient(const Block& b, const float* p, float* dp,
                                       const float* delta, float scale) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row row = row_of(dp + r * b.cols);
    const KeyRange visible = b.visible_in(r);
    const Row seen = row.from(visible.first);
    const Row weights = row_of(p + r * b.cols + visible.first);
    for_vectors(visible.count(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      seen.store(c, n, weights.load(c, n) * (seen.load(c, n) - delta[r]) * scale);
    });
    clear(row, 0, visible.first);
    clear(row, visible.last, b.cols);
  }
}

SHARDMARK_CLONES void row_products(const AttentionBackward& op, std::int64_t token,
                                   std::int64_t head, float* delta) {
  for (std::int64_t r = 0; r < op.shape.seq; ++r) {
    const Row o = row_of(op.o, token + r).from(head * op.shape.head_dim);
    const Row d_o = row_of(op.d_o, token + r).from(head * op.shape.head_dim);
    Floats total = splat(0);
    for_vectors(op.shape.head_dim, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      total += o.load(c, n) * d_o.load(c, n);
    });
    delta[r] = sum(total);
  }
}

}  // namespace shardmark::kernels
