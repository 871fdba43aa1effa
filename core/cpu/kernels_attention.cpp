#include "core/cpu/attention_blocks.hpp"
#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"
#include "core/error.hpp"

#include <array>
#include <cmath>

namespace shardmark::kernels {
namespace {

// Queries and keys per block of scores, and queries of those partly masked.
constexpr std::int64_t query_block = 256;
constexpr std::int64_t key_block = 256;
constexpr std::int64_t partial_rows = 64;

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

struct BackwardScratch {
  float *q, *k, *v, *d_o, *dq, *dk, *dv, *delta, *scores, *dscores;
};
BackwardScratch scratch_of(Carver& carver, const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t rows = std::min(query_block, s.seq), cols = std::min(key_block, s.num_keys());
  BackwardScratch scratch{};
  for (float** block : {&scratch.q, &scratch.d_o}) *block = carver.take(rows * s.head_dim);
  for (float** block : {&scratch.k, &scratch.v}) *block = carver.take(cols * s.head_dim);
  const auto sums = [&](const Tensor& gradient, std::int64_t num_rows) {
    return carver.take(gradient.dtype == DType::f32 ? 0 : num_rows * s.head_dim);
  };
  scratch.dq = sums(op.dq, s.seq);
  scratch.dk = sums(op.dk, s.num_keys());
  scratch.dv = sums(op.dv, s.num_keys());
  scratch.delta = carver.take(s.seq);
  for (float** block : {&scratch.scores, &scratch.dscores}) *block = carver.take(rows * cols);
  return scratch;
}

/// Rows of one head as f32, `stride` elements apart.
struct HeadRows {
  float* data;
  std::int64_t stride;
  [[nodiscard]] float* row(std::int64_t r) const { return data + r * stride; }
  [[nodiscard]] HeadRows at(std::int64_t r) const { return {row(r), stride}; }
  [[nodiscard]] SgemmResult result() const { return {data, stride}; }
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

/// The keys of a block of scores and where their gradients go; row 0 is the block's first key.
struct Keys {
  const float *k, *v;
  HeadRows dk, dv;
};

void backward_block(const AttentionBackward& op, const Block& b, std::int64_t batch,
                    std::int64_t head, const Keys& keys, const HeadRows& dq,
                    const BackwardScratch& w, const BlockHook& between_products) {
  const AttentionShape& s = op.shape;
  const std::int64_t d = s.head_dim, token = batch * s.seq + b.query;
  const float scale = score_scale(s);
  gather_head(op.q, token, head, b.rows, d, w.q);
  gather_head(op.d_o, token, head, b.rows, d, w.d_o);
  const SgemmOperand q{w.q, d}, d_o{w.d_o, d};
  const float* const lse = op.lse.as<float>() + (batch * s.heads + head) * s.seq + b.query;
  sgemm({b.rows, b.cols, d, scale}, q, {keys.k, d, true}, {w.scores, b.cols});
  recompute_softmax(b, w.scores, lse);
  sgemm({b.cols, d, b.rows, 1.0F, true}, {w.scores, b.cols, true}, d_o, keys.dv.result());
  between_products();
  sgemm({b.rows, b.cols, d}, d_o, {keys.v, d, true}, {w.dscores, b.cols});
  softmax_gradient(b, w.scores, w.dscores, w.delta + b.query, scale);
  sgemm({b.rows, d, b.cols, 1.0F, true}, {w.dscores, b.cols}, {keys.k, d}, dq.at(b.query).result());
  sgemm({b.cols, d, b.rows, 1.0F, true}, {w.dscores, b.cols, true}, q, keys.dk.result());
  between_products();
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
  const HeadRows dq = sums_of(op.dq, token, head, s.seq, op, w.dq);
  for (std::size_t run = 0; run < 2 && ranges.of_run[run] != nullptr; ++run) {
    const KeyRange* const seen = ranges.of_run[run];
    const KeyRange all = seen_by(seen, s.seq);
    for (std::int64_t j = all.first; j < all.last; j += key_block) {
      const std::int64_t cols = std::min(key_block, all.last - j), key = ranges.first_key[run] + j;
      gather_head(op.k, batch * s.num_keys() + key, kv_head, cols, d, w.k);
      gather_head(op.v, batch * s.num_keys() + key, kv_head, cols, d, w.v);
      for (std::int64_t i = 0; i < s.seq; i += query_block) {
        for_seen(
            seen, i, std::min(query_block, s.seq - i), {j, j + cols}, finite, [&](const Block& b) {
              const std::int64_t row = b.key - j;
              backward_block(op, b, batch, head,
                             {w.k + row * d, w.v + row * d, dk.at(key + row), dv.at(key + row)}, dq,
                             w, after_products);
            });
      }
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
  const HeadRows dk = sums_of(op.dk, token, kv_head, s.num_keys(), op, w.dk);
  const HeadRows dv = sums_of(op.dv, token, kv_head, s.num_keys(), op, w.dv);
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
