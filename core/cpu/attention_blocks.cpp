#include "core/cpu/attention_blocks.hpp"

#include "core/cpu/vector_math.hpp"

#include <cmath>

namespace shardmark::kernels {

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
    const Row x = row_of(const_cast<float*>(from) + r * head_dim);
    const Row y = row_of(to, token + r).from(head * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n)
                              SHARDMARK_INLINE { y.store(c, n, x.load(c, n)); });
  }
}

SHARDMARK_CLONES void online_softmax(const Block& b, const Online& state, std::int64_t head_dim) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row scores = row_of(b.scores + r * b.cols);
    const std::int64_t visible = b.visible_in(r);
    Floats highest = splat(state.most[r]);
    for_vectors(visible, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      highest = larger(highest, scores.load(c, n, -__builtin_inff()));
    });
    const float most = maximum(highest);
    Floats total = splat(0);
    for_vectors(b.cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const std::int64_t seen = std::clamp<std::int64_t>(visible - c, 0, n);
      const Floats p = exp(scores.load(c, seen, -__builtin_inff()) - most);
      total += p;
      scores.store(c, n, p);
    });
    const float rescale = exp(splat(state.most[r] - most))[0];
    state.total[r] = state.total[r] * rescale + sum(total);
    state.most[r] = most;
    if (rescale == 1.0F) continue;
    const Row output = row_of(state.output + r * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      output.store(c, n, output.load(c, n) * rescale);
    });
  }
}

SHARDMARK_CLONES void finish_rows(const Online& state, std::int64_t rows, std::int64_t head_dim,
                                  float* lse) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float inverse = 1.0F / state.total[r];
    const Row output = row_of(state.output + r * head_dim);
    for_vectors(head_dim, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      output.store(c, n, output.load(c, n) * inverse);
    });
    lse[r] = state.most[r] + std::log(state.total[r]);
  }
}

SHARDMARK_CLONES void recompute_softmax(const Block& b, const float* lse) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row scores = row_of(b.scores + r * b.cols);
    const std::int64_t visible = b.visible_in(r);
    for_vectors(b.cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const std::int64_t seen = std::clamp<std::int64_t>(visible - c, 0, n);
      scores.store(c, n, exp(scores.load(c, seen, -__builtin_inff()) - lse[r]));
    });
  }
}

SHARDMARK_CLONES void softmax_gradient(const Block& b, float* dp, const float* delta, float scale) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row p = row_of(b.scores + r * b.cols);
    const Row d = row_of(dp + r * b.cols);
    for_vectors(b.cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      d.store(c, n, p.load(c, n) * (d.load(c, n) - delta[r]) * scale);
    });
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
