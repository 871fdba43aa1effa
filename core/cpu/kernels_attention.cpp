#include "core/cpu/attention_blocks.hpp"
#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"
#include "core/error.hpp"

#include <array>
#include <cmath>

namespace shardmark::kernels {
namespace {

// Queries and keys per block of scores, queries of those partly masked, and keys that the backward
// pass works on before the next: each panel takes reading q and d_o and adding to dq once.
constexpr std::int64_t query_block = 256;
constexpr std::int64_t key_block = 256;
constexpr std::int64_t partial_rows = 64;
constexpr std::int64_t key_panel = 512;

/// Hands out parts of a thread's scratch.
class Carver {
 public:
  explicit Carver(std::byte* data) : data_{data} {}
  template <class Element = float>
  Element* take(std::int64_t count) {
    std::byte* const part = data_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(Element)) + 63) / 64 * 64;
    return reinterpret_cast<Element*>(part);
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::byte* data_;
  std::int64_t used_{0};
};

/// Called after every block of scores; does nothing inside a parallel region.
struct BlockHook {
  TileHook* hook;
  void operator()() const {
    if (hook != nullptr && hook->wants_tiles()) hook->between_tiles();
  }
};

float score_scale(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

/// What every query sees of each run of keys: `of_run[i][row]`.
struct Ranges {
  std::array<KeyRange*, 2> of_run;
  std::array<std::int64_t, 2> first_key;  ///< row in k and v where the run begins
};
Ranges ranges_in(Carver& carver, const AttentionShape& s) {
  const Places keys = s.key_places();
  return {{carver.take<KeyRange>(s.seq),
           keys.runs[1].count > 0 ? carver.take<KeyRange>(s.seq) : nullptr},
          {0, keys.runs[0].count}};
}
void find_ranges(const AttentionShape& s, const Ranges& ranges) {
  const Visibility visibility = s.visibility();
  const Places queries = s.query_places(), keys = s.key_places();
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t row = 0; ranges.of_run[i] != nullptr && row < s.seq; ++row)
      ranges.of_run[i][row] = visible_keys(visibility, queries[row], keys.runs[i]);
}

/// Calls body(block) for what is seen of these queries and keys. Partly masked blocks are cut into
/// few rows, which wastes less above the diagonal; into single rows, of which nothing is masked, if
/// there is an infinity or NaN, because times a masked zero it would be NaN.
template <class Body>
void for_seen(const KeyRange* ranges, std::int64_t query, std::int64_t rows, KeyRange keys,
              bool finite, const Body& body) {
  const Block block = block_of(ranges, query, rows, keys);
  const std::int64_t step = block.whole ? block.rows : (finite ? partial_rows : 1);
  const std::int64_t end = block.query + block.rows;
  for (std::int64_t i = block.query; i < end; i += step)
    if (const Block part = block_of(ranges, i, std::min(step, end - i), keys); part.rows > 0)
      body(part);
}

// ------------------------------------------------------------------------------------ forward

struct ForwardScratch {
  float *q, *k, *v, *scores;
  Online state;
};
ForwardScratch scratch_of(Carver& carver, const Attention& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t rows = std::min(query_block, s.seq);
  ForwardScratch scratch{};
  scratch.q = carver.take(rows * s.head_dim);
  for (float** head : {&scratch.k, &scratch.v}) *head = carver.take(s.num_keys() * s.head_dim);
  scratch.scores = carver.take(rows * std::min(key_block, s.num_keys()));
  scratch.state = {carver.take(rows), carver.take(rows), carver.take(rows * s.head_dim)};
  return scratch;
}

void forward_block(const AttentionShape& s, const Block& b, std::int64_t first_query,
                   const float* k, const float* v, const ForwardScratch& w) {
  const std::int64_t d = s.head_dim, row = b.query - first_query;
  const Online state{w.state.most + row, w.state.total + row, w.state.output + row * d};
  sgemm({b.rows, b.cols, d, score_scale(s)}, {w.q + row * d, d}, {k + b.key * d, d, true},
        {w.scores, b.cols});
  online_softmax(b, w.scores, state, d);
  sgemm({b.rows, d, b.cols, 1.0F, true}, {w.scores, b.cols}, {v + b.key * d, d}, {state.output, d});
}

void forward_head(const Attention& op, const Ranges& ranges, std::int64_t task,
                  const ForwardScratch& w, const BlockHook& after_block) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim, num_keys = s.num_keys();
  const std::int64_t batch = task / s.heads, head = task % s.heads;
  const std::int64_t kv_head = head / (s.heads / s.kv_heads);
  gather_head(op.k, batch * num_keys, kv_head, num_keys, d, w.k);
  gather_head(op.v, batch * num_keys, kv_head, num_keys, d, w.v);
  const bool finite = is_finite(op.v, batch * num_keys, kv_head, num_keys, d);
  for (std::int64_t i = 0; i < s.seq; i += query_block) {
    const std::int64_t rows = std::min(query_block, s.seq - i), token = batch * s.seq + i;
    float* const lse = op.lse.as<float>() + task * s.seq + i;
    gather_head(op.q, token, head, rows, d, w.q);
    if (op.accumulate) {
      gather_head(op.o, token, head, rows, d, w.state.output);
      resume_rows(w.state, rows, lse);
    } else {
      start_rows(w.state, rows, d);
    }
    for (std::size_t run = 0; run < 2 && ranges.of_run[run] != nullptr; ++run) {
      const KeyRange* const seen = ranges.of_run[run];
      const std::int64_t first_key = ranges.first_key[run] * d;
      const KeyRange keys = seen_by(seen + i, rows);
      for (std::int64_t j = keys.first; j < keys.last; j += key_block) {
        for_seen(
            seen, i, rows, {j, std::min(j + key_block, keys.last)}, finite,
            [&](const Block& b) { forward_block(s, b, i, w.k + first_key, w.v + first_key, w); });
        after_block();
      }
    }
    finish_rows(w.state, rows, d, lse);
    scatter_head(w.state.output, op.o, token, head, rows, d);
  }
}

// ----------------------------------------------------------------------------------- backward

/// Blocks of queries, panels of keys and their gradients, and sums for gradients that are not f32.
struct BackwardScratch {
  float *q, *d_o, *dq, *k, *v, *dk, *dv, *delta, *scores, *dscores;
  float *dq_sums, *dk_sums, *dv_sums;
};
BackwardScratch scratch_of(Carver& carver, const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim, rows = std::min(query_block, s.seq);
  BackwardScratch w{};
  for (float** block : {&w.q, &w.d_o, &w.dq}) *block = carver.take(rows * d);
  for (float** panel : {&w.k, &w.v, &w.dk, &w.dv})
    *panel = carver.take(std::min(key_panel, s.num_keys()) * d);
  w.delta = carver.take(s.seq);
  for (float** block : {&w.scores, &w.dscores})
    *block = carver.take(rows * std::min(key_block, s.num_keys()));
  const auto sums = [&](const Tensor& gradient, std::int64_t num_rows) {
    return carver.take(gradient.dtype == DType::f32 ? 0 : num_rows * d);
  };
  w.dq_sums = sums(op.dq, s.seq);
  w.dk_sums = sums(op.dk, s.num_keys());
  w.dv_sums = sums(op.dv, s.num_keys());
  return w;
}

/// Rows of one head as f32, `stride` elements apart.
struct HeadRows {
  float* data;
  std::int64_t stride;
  [[nodiscard]] float* row(std::int64_t r) const { return data + r * stride; }
};
/// Where the f32 sums of one head's gradient lie: in the tensor if it can hold them. Zero before
/// unless they accumulate.
HeadRows sums_of(const Tensor& gradient, std::int64_t token, std::int64_t head, std::int64_t rows,
                 const AttentionBackward& op, float* copy) {
  const std::int64_t d = op.shape.head_dim;
  HeadRows sums{copy, d};
  if (gradient.dtype == DType::f32)
    sums = {gradient.as<float>() + token * gradient.row_stride + head * d, gradient.row_stride};
  for (std::int64_t r = 0; !op.accumulate && r < rows; ++r) std::fill_n(sums.row(r), d, 0.0F);
  return sums;
}

/// Adds to dq, dk and dv of the scratch; `row` and `key` are the block's first in there.
void backward_block(const AttentionShape& s, const Block& b, std::int64_t row, std::int64_t key,
                    const float* lse, const BackwardScratch& w, const BlockHook& after_products) {
  const std::int64_t d = s.head_dim;
  const SgemmOperand q{w.q + row * d, d}, d_o{w.d_o + row * d, d}, k{w.k + key * d, d};
  sgemm({b.rows, b.cols, d, score_scale(s)}, q, {k.data, d, true}, {w.scores, b.cols});
  recompute_softmax(b, w.scores, lse + b.query);
  sgemm({b.cols, d, b.rows, 1.0F, true}, {w.scores, b.cols, true}, d_o, {w.dv + key * d, d});
  after_products();
  sgemm({b.rows, b.cols, d}, d_o, {w.v + key * d, d, true}, {w.dscores, b.cols});
  softmax_gradient(b, w.scores, w.dscores, w.delta + b.query, score_scale(s));
  sgemm({b.rows, d, b.cols, 1.0F, true}, {w.dscores, b.cols}, k, {w.dq + row * d, d});
  sgemm({b.cols, d, b.rows, 1.0F, true}, {w.dscores, b.cols, true}, q, {w.dk + key * d, d});
  after_products();
}

/// All queries of a head against a panel of keys, row 0 of k, v, dk and dv in the scratch.
void backward_panel(const AttentionBackward& op, const KeyRange* seen, KeyRange keys,
                    std::int64_t batch, std::int64_t head, bool finite, const HeadRows& dq,
                    const BackwardScratch& w, const BlockHook& after_products) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim;
  const float* const lse = op.lse.as<float>() + (batch * s.heads + head) * s.seq;
  for (std::int64_t i = 0; i < s.seq; i += query_block) {
    const std::int64_t rows = std::min(query_block, s.seq - i);
    if (block_of(seen, i, rows, keys).rows == 0) continue;
    gather_head(op.q, batch * s.seq + i, head, rows, d, w.q);
    gather_head(op.d_o, batch * s.seq + i, head, rows, d, w.d_o);
    std::fill_n(w.dq, rows * d, 0.0F);
    for (std::int64_t j = keys.first; j < keys.last; j += key_block)
      for_seen(seen, i, rows, {j, std::min(j + key_block, keys.last)}, finite, [&](const Block& b) {
        backward_block(s, b, b.query - i, b.key - keys.first, lse, w, after_products);
      });
    add_rows(w.dq, rows, d, dq.row(i), dq.stride);
  }
}

/// One query head's dq, and its share of dk and dv added to what is there.
void backward_head(const AttentionBackward& op, const Ranges& ranges, std::int64_t batch,
                   std::int64_t head, const HeadRows& dk, const HeadRows& dv, bool finite_keys,
                   const BackwardScratch& w, const BlockHook& after_products) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim, token = batch * s.seq, kv_head = head / (s.heads / s.kv_heads);
  const bool finite = finite_keys && is_finite(op.q, token, head, s.seq, d) &&
                      is_finite(op.d_o, token, head, s.seq, d);
  row_products(op, token, head, w.delta);
  const HeadRows dq = sums_of(op.dq, token, head, s.seq, op, w.dq_sums);
  for (std::size_t run = 0; run < 2 && ranges.of_run[run] != nullptr; ++run) {
    const KeyRange* const seen = ranges.of_run[run];
    const KeyRange all = seen_by(seen, s.seq);
    for (std::int64_t j = all.first; j < all.last; j += key_panel) {
      const std::int64_t cols = std::min(key_panel, all.last - j), key = ranges.first_key[run] + j;
      gather_head(op.k, batch * s.num_keys() + key, kv_head, cols, d, w.k);
      gather_head(op.v, batch * s.num_keys() + key, kv_head, cols, d, w.v);
      for (float* sums : {w.dk, w.dv}) std::fill_n(sums, cols * d, 0.0F);
      backward_panel(op, seen, {j, j + cols}, batch, head, finite, dq, w, after_products);
      add_rows(w.dk, cols, d, dk.row(key), dk.stride);
      add_rows(w.dv, cols, d, dv.row(key), dv.stride);
    }
  }
  if (op.dq.dtype != DType::f32) scatter_head(dq.data, op.dq, token, head, s.seq, d);
}

/// All query heads that share one KV head.
void backward_group(const AttentionBackward& op, const Ranges& ranges, std::int64_t task,
                    const BackwardScratch& w, const BlockHook& after_products) {
  const AttentionShape& s = op.shape;
  const std::int64_t token = task / s.kv_heads * s.num_keys(), kv_head = task % s.kv_heads;
  const std::int64_t heads_per_group = s.heads / s.kv_heads, d = s.head_dim;
  const HeadRows dk = sums_of(op.dk, token, kv_head, s.num_keys(), op, w.dk_sums);
  const HeadRows dv = sums_of(op.dv, token, kv_head, s.num_keys(), op, w.dv_sums);
  const bool finite = is_finite(op.k, token, kv_head, s.num_keys(), d);
  for (std::int64_t h = 0; h < heads_per_group; ++h)
    backward_head(op, ranges, task / s.kv_heads, kv_head * heads_per_group + h, dk, dv, finite, w,
                  after_products);
  if (op.dk.dtype != DType::f32) scatter_head(dk.data, op.dk, token, kv_head, s.num_keys(), d);
  if (op.dv.dtype != DType::f32) scatter_head(dv.data, op.dv, token, kv_head, s.num_keys(), d);
}

// --------------------------------------------------------------------------------------- both

/// Bytes for the ranges, which threads share, and for each thread.
struct ScratchBytes {
  std::int64_t shared, per_thread;
};
template <class Op>
ScratchBytes scratch_bytes(const Op& op) {
  Carver ranges{nullptr}, thread{nullptr};
  (void)ranges_in(ranges, op.shape);
  (void)scratch_of(thread, op);
  return {ranges.used(), thread.used()};
}

/// Runs body(task, ranges, scratch, hook) for every task: one after another with a hook between
/// blocks, or as many at once as there are threads with the hook between rounds.
template <class Op, class Body>
void for_heads(const Op& op, const Context& context, std::int64_t num_tasks, const Body& body) {
  SHARDMARK_CHECK(op.lse.contiguous(), "attention lse must be contiguous");
  const int num_threads = std::max(1, context.num_threads);
  std::byte* const data = context.scratch.take(attention_scratch_bytes(op, num_threads));
  const ScratchBytes bytes = scratch_bytes(op);
  Carver shared{data};
  const Ranges ranges = ranges_in(shared, op.shape);
  find_ranges(op.shape, ranges);
  const auto run_task = [&](std::int64_t task, std::int64_t thread, const BlockHook& hook) {
    Carver carver{data + bytes.shared + thread * bytes.per_thread};
    body(task, ranges, scratch_of(carver, op), hook);
  };
  if (num_threads == 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task)
      run_task(task, 0, BlockHook{&context.hook});
    return;
  }
  for (std::int64_t first = 0; first < num_tasks; first += num_threads) {
    if (first > 0) BlockHook{&context.hook}();
    in_parallel(num_threads, std::min<std::int64_t>(num_threads, num_tasks - first),
                [&](std::int64_t from, std::int64_t to) {
                  for (std::int64_t task = from; task < to; ++task)
                    run_task(first + task, task, BlockHook{nullptr});
                });
  }
}

}  // namespace

std::int64_t attention_scratch_bytes(const Attention& op, int num_threads) {
  const ScratchBytes bytes = scratch_bytes(op);
  return bytes.shared + bytes.per_thread * std::max(1, num_threads);
}
std::int64_t attention_scratch_bytes(const AttentionBackward& op, int num_threads) {
  const ScratchBytes bytes = scratch_bytes(op);
  return bytes.shared + bytes.per_thread * std::max(1, num_threads);
}

const char* run(const Attention& op, const Context& context) {
  for_heads(op, context, op.shape.batch * op.shape.heads,
            [&](std::int64_t task, const Ranges& ranges, const ForwardScratch& scratch,
                const BlockHook& hook) { forward_head(op, ranges, task, scratch, hook); });
  return "shardmark_attention_fwd";
}

const char* run(const AttentionBackward& op, const Context& context) {
  for_heads(op, context, op.shape.batch * op.shape.kv_heads,
            [&](std::int64_t task, const Ranges& ranges, const BackwardScratch& scratch,
                const BlockHook& hook) { backward_group(op, ranges, task, scratch, hook); });
  return "shardmark_attention_bwd";
}

}  // namespace shardmark::kernels
