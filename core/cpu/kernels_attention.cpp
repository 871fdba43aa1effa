#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"
#include "core/cpu/vector_math.hpp"
#include "core/error.hpp"

#include <cmath>

namespace shardmark::kernels {
namespace {

/// Queries and keys per block: two blocks of scores fit the level 2 cache.
constexpr std::int64_t block = 256;

/// Copies a head out of token-major rows (or back), converting.
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

/// One block of scores: `rows` queries against `cols` keys. Row r sees the first
/// `visible + r` keys (all of them when not causal).
struct Block {
  float* scores;
  std::int64_t rows, cols, visible;
  [[nodiscard]] std::int64_t visible_in(std::int64_t row) const {
    return std::min(cols, visible + row);
  }
};

/// What online softmax keeps per query row.
struct Online {
  float *most, *total, *output;
};

/// Turns scores into exp(scores - running maximum), zero where masked, and rescales what was summed
/// before to the new maximum.
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

/// Scores become probabilities, from the log-sum-exp of their rows.
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

/// dscores = p * (dp - delta) * scale, in place of dp.
SHARDMARK_CLONES void softmax_gradient(const Block& b, float* dp, const float* delta, float scale) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const Row p = row_of(b.scores + r * b.cols);
    const Row d = row_of(dp + r * b.cols);
    for_vectors(b.cols, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      d.store(c, n, p.load(c, n) * (d.load(c, n) - delta[r]) * scale);
    });
  }
}

/// delta_r = o_r . do_r
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

/// Hands out parts of a thread's scratch.
class Carver {
 public:
  explicit Carver(std::byte* data) : data_{data} {}
  float* floats(std::int64_t count) {
    std::byte* const part = data_ + used_;
    used_ += (count * 4 + 63) / 64 * 64;
    return reinterpret_cast<float*>(part);
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::byte* data_;
  std::int64_t used_{0};
};

struct ForwardScratch {
  float *q, *k, *v, *scores;
  Online state;
};
ForwardScratch forward_scratch(Carver& carver, const AttentionShape& s) {
  const std::int64_t head = s.seq * s.head_dim;
  const std::int64_t edge = std::min(block, s.seq);
  ForwardScratch scratch{};
  for (float** part : {&scratch.q, &scratch.k, &scratch.v}) *part = carver.floats(head);
  scratch.scores = carver.floats(edge * edge);
  scratch.state.most = carver.floats(edge);
  scratch.state.total = carver.floats(edge);
  scratch.state.output = carver.floats(edge * s.head_dim);
  return scratch;
}

struct BackwardScratch {
  float *q, *k, *v, *d_o, *dq, *dk, *dv, *delta, *scores, *dscores;
};
BackwardScratch backward_scratch(Carver& carver, const AttentionShape& s) {
  const std::int64_t head = s.seq * s.head_dim;
  const std::int64_t edge = std::min(block, s.seq);
  BackwardScratch scratch{};
  for (float** part :
       {&scratch.q, &scratch.k, &scratch.v, &scratch.d_o, &scratch.dq, &scratch.dk, &scratch.dv})
    *part = carver.floats(head);
  scratch.delta = carver.floats(s.seq);
  scratch.scores = carver.floats(edge * edge);
  scratch.dscores = carver.floats(edge * edge);
  return scratch;
}

/// Called after every block of scores; does nothing inside a parallel region.
struct BlockHook {
  TileHook* hook;
  void operator()() const {
    if (hook != nullptr && hook->wants_tiles()) hook->between_tiles();
  }
};

std::int64_t keys_seen(const AttentionShape& s, std::int64_t query, std::int64_t rows) {
  return s.causal ? std::min(s.seq, query + rows) : s.seq;
}
std::int64_t first_visible(const AttentionShape& s, std::int64_t query, std::int64_t key) {
  return s.causal ? query - key + 1 : s.seq;
}
float score_scale(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

void forward_head(const Attention& op, std::int64_t task, const ForwardScratch& scratch,
                  const BlockHook& after_block) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim;
  const std::int64_t token = task / s.heads * s.seq;
  const std::int64_t head = task % s.heads;
  const std::int64_t kv_head = head / (s.heads / s.kv_heads);
  gather_head(op.q, token, head, s.seq, d, scratch.q);
  gather_head(op.k, token, kv_head, s.seq, d, scratch.k);
  gather_head(op.v, token, kv_head, s.seq, d, scratch.v);
  float* const lse = op.lse.as<float>() + task * s.seq;
  const Online& state = scratch.state;
  for (std::int64_t i = 0; i < s.seq; i += block) {
    const std::int64_t rows = std::min(block, s.seq - i);
    std::fill_n(state.most, rows, -__builtin_inff());
    std::fill_n(state.total, rows, 0.0F);
    for (std::int64_t j = 0; j < keys_seen(s, i, rows); j += block) {
      const Block b{scratch.scores, rows, std::min(block, s.seq - j), first_visible(s, i, j)};
      sgemm({rows, b.cols, d, score_scale(s)}, {scratch.q + i * d, d}, {scratch.k + j * d, d, true},
            {b.scores, b.cols});
      if (j == 0) std::fill_n(state.output, rows * d, 0.0F);
      online_softmax(b, state, d);
      sgemm({rows, d, b.cols, 1.0F, j > 0}, {b.scores, b.cols}, {scratch.v + j * d, d},
            {state.output, d});
      after_block();
    }
    finish_rows(state, rows, d, lse + i);
    scatter_head(state.output, op.o, token + i, head, rows, d);
  }
}

/// One query head's share of dq, dk, dv; `adds` when an earlier head wrote dk and dv.
void backward_head(const AttentionBackward& op, std::int64_t token, std::int64_t head, bool adds,
                   const BackwardScratch& w, const BlockHook& after_block) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim;
  const float scale = score_scale(s);
  gather_head(op.q, token, head, s.seq, d, w.q);
  gather_head(op.d_o, token, head, s.seq, d, w.d_o);
  row_products(op, token, head, w.delta);
  const float* const lse = op.lse.as<float>() + (token / s.seq * s.heads + head) * s.seq;
  for (std::int64_t j = 0; j < s.seq; j += block) {
    const std::int64_t first = s.causal ? j : 0;
    for (std::int64_t i = first; i < s.seq; i += block) {
      const std::int64_t rows = std::min(block, s.seq - i);
      const Block b{w.scores, rows, std::min(block, s.seq - j), first_visible(s, i, j)};
      const bool adds_keys = adds || i > first;
      sgemm({rows, b.cols, d, scale}, {w.q + i * d, d}, {w.k + j * d, d, true}, {b.scores, b.cols});
      recompute_softmax(b, lse + i);
      sgemm({b.cols, d, rows, 1.0F, adds_keys}, {b.scores, b.cols, true}, {w.d_o + i * d, d},
            {w.dv + j * d, d});
      sgemm({rows, b.cols, d, 1.0F}, {w.d_o + i * d, d}, {w.v + j * d, d, true},
            {w.dscores, b.cols});
      softmax_gradient(b, w.dscores, w.delta + i, scale);
      sgemm({rows, d, b.cols, 1.0F, j > 0}, {w.dscores, b.cols}, {w.k + j * d, d},
            {w.dq + i * d, d});
      sgemm({b.cols, d, rows, 1.0F, adds_keys}, {w.dscores, b.cols, true}, {w.q + i * d, d},
            {w.dk + j * d, d});
      after_block();
    }
  }
  scatter_head(w.dq, op.dq, token, head, s.seq, d);
}

/// All query heads that share one KV head.
void backward_group(const AttentionBackward& op, std::int64_t task, const BackwardScratch& w,
                    const BlockHook& after_block) {
  const AttentionShape& s = op.shape;
  const std::int64_t token = task / s.kv_heads * s.seq;
  const std::int64_t kv_head = task % s.kv_heads;
  const std::int64_t heads_per_group = s.heads / s.kv_heads;
  gather_head(op.k, token, kv_head, s.seq, s.head_dim, w.k);
  gather_head(op.v, token, kv_head, s.seq, s.head_dim, w.v);
  for (std::int64_t h = 0; h < heads_per_group; ++h)
    backward_head(op, token, kv_head * heads_per_group + h, h > 0, w, after_block);
  scatter_head(w.dk, op.dk, token, kv_head, s.seq, s.head_dim);
  scatter_head(w.dv, op.dv, token, kv_head, s.seq, s.head_dim);
}

/// Runs body(task, scratch, hook) for every task: one after another with a hook between blocks, or
/// as many at once as there are threads with the hook between rounds.
template <class Body>
void for_heads(const Context& context, std::int64_t num_tasks, std::int64_t bytes_per_thread,
               const Body& body) {
  const int num_threads = std::max(1, context.num_threads);
  std::byte* const scratch = context.scratch.take(bytes_per_thread * num_threads);
  if (num_threads == 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task)
      body(task, scratch, BlockHook{&context.hook});
    return;
  }
  for (std::int64_t first = 0; first < num_tasks; first += num_threads) {
    if (first > 0) BlockHook{&context.hook}();
    in_parallel(num_threads, std::min<std::int64_t>(num_threads, num_tasks - first),
                [&](std::int64_t from, std::int64_t to) {
                  for (std::int64_t task = from; task < to; ++task)
                    body(first + task, scratch + bytes_per_thread * task, BlockHook{nullptr});
                });
  }
}

std::int64_t bytes_per_thread(const AttentionShape& shape, bool backward) {
  Carver carver{nullptr};
  if (backward)
    backward_scratch(carver, shape);
  else
    forward_scratch(carver, shape);
  return carver.used();
}

}  // namespace

std::int64_t attention_scratch_bytes(const AttentionShape& shape, bool backward, int num_threads) {
  return bytes_per_thread(shape, backward) * std::max(1, num_threads);
}

const char* run(const Attention& op, const Context& context) {
  SHARDMARK_CHECK(op.lse.contiguous(), "attention lse must be contiguous");
  for_heads(context, op.shape.batch * op.shape.heads, bytes_per_thread(op.shape, false),
            [&](std::int64_t task, std::byte* data, const BlockHook& hook) {
              Carver carver{data};
              forward_head(op, task, forward_scratch(carver, op.shape), hook);
            });
  return "shardmark_attention_fwd";
}

const char* run(const AttentionBackward& op, const Context& context) {
  SHARDMARK_CHECK(op.lse.contiguous(), "attention lse must be contiguous");
  for_heads(context, op.shape.batch * op.shape.kv_heads, bytes_per_thread(op.shape, true),
            [&](std::int64_t task, std::byte* data, const BlockHook& hook) {
              Carver carver{data};
              backward_group(op, task, backward_scratch(carver, op.shape), hook);
            });
  return "shardmark_attention_bwd";
}

}  // namespace shardmark::kernels
