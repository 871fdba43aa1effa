#include "core/cpu/attention_blocks.hpp"
#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"
#include "core/error.hpp"

#include <cmath>

namespace shardmark::kernels {
namespace {

// Queries and keys per block of scores. Half as many queries as keys waste less above the diagonal
// than square blocks: 62 instead of 55 % of the matmul peak at 1024 tokens, 128 columns per head.
constexpr std::int64_t query_block = 128;
constexpr std::int64_t key_block = 256;

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
  const std::int64_t rows = std::min(query_block, s.seq);
  ForwardScratch scratch{};
  for (float** part : {&scratch.q, &scratch.k, &scratch.v}) *part = carver.floats(head);
  scratch.scores = carver.floats(rows * std::min(key_block, s.seq));
  scratch.state.most = carver.floats(rows);
  scratch.state.total = carver.floats(rows);
  scratch.state.output = carver.floats(rows * s.head_dim);
  return scratch;
}

struct BackwardScratch {
  float *q, *k, *v, *d_o, *dq, *dk, *dv, *delta, *scores, *dscores;
};
BackwardScratch backward_scratch(Carver& carver, const AttentionShape& s) {
  const std::int64_t head = s.seq * s.head_dim;
  const std::int64_t scores = std::min(query_block, s.seq) * std::min(key_block, s.seq);
  BackwardScratch scratch{};
  for (float** part :
       {&scratch.q, &scratch.k, &scratch.v, &scratch.d_o, &scratch.dq, &scratch.dk, &scratch.dv})
    *part = carver.floats(head);
  scratch.delta = carver.floats(s.seq);
  scratch.scores = carver.floats(scores);
  scratch.dscores = carver.floats(scores);
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
  for (std::int64_t i = 0; i < s.seq; i += query_block) {
    const std::int64_t rows = std::min(query_block, s.seq - i);
    const std::int64_t keys = keys_seen(s, i, rows);
    std::fill_n(state.most, rows, -__builtin_inff());
    std::fill_n(state.total, rows, 0.0F);
    for (std::int64_t j = 0; j < keys; j += key_block) {
      const Block b{scratch.scores, rows, std::min(key_block, keys - j), first_visible(s, i, j)};
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

/// One query head's dq, and its share of dk and dv added to what is there.
void backward_head(const AttentionBackward& op, std::int64_t token, std::int64_t head,
                   const BackwardScratch& w, const BlockHook& after_block) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim;
  const float scale = score_scale(s);
  gather_head(op.q, token, head, s.seq, d, w.q);
  gather_head(op.d_o, token, head, s.seq, d, w.d_o);
  row_products(op, token, head, w.delta);
  const float* const lse = op.lse.as<float>() + (token / s.seq * s.heads + head) * s.seq;
  for (std::int64_t j = 0; j < s.seq; j += key_block) {
    const std::int64_t first = s.causal ? j / query_block * query_block : 0;
    for (std::int64_t i = first; i < s.seq; i += query_block) {
      const std::int64_t rows = std::min(query_block, s.seq - i);
      const std::int64_t keys = std::min(key_block, keys_seen(s, i, rows) - j);
      const Block b{w.scores, rows, keys, first_visible(s, i, j)};
      sgemm({rows, b.cols, d, scale}, {w.q + i * d, d}, {w.k + j * d, d, true}, {b.scores, b.cols});
      recompute_softmax(b, lse + i);
      sgemm({b.cols, d, rows, 1.0F, true}, {b.scores, b.cols, true}, {w.d_o + i * d, d},
            {w.dv + j * d, d});
      sgemm({rows, b.cols, d, 1.0F}, {w.d_o + i * d, d}, {w.v + j * d, d, true},
            {w.dscores, b.cols});
      softmax_gradient(b, w.dscores, w.delta + i, scale);
      sgemm({rows, d, b.cols, 1.0F, j > 0}, {w.dscores, b.cols}, {w.k + j * d, d},
            {w.dq + i * d, d});
      sgemm({b.cols, d, rows, 1.0F, true}, {w.dscores, b.cols, true}, {w.q + i * d, d},
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
  for (float* sums : {w.dk, w.dv}) std::fill_n(sums, s.seq * s.head_dim, 0.0F);
  for (std::int64_t h = 0; h < heads_per_group; ++h)
    backward_head(op, token, kv_head * heads_per_group + h, w, after_block);
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
