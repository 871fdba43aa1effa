// Attention without cuDNN: scores by a matmul, their softmax, the output by a matmul; backward the
// same with four more. Scores are in memory, so work is cut into tiles: some query rows of one run
// of places and one packed sequence, some heads, and all keys that any of these queries sees. Query
// heads that share a key head are one call each, and key heads are the batch of a call.

#include "core/cuda/translate/parts.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardmark::cuda {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

/// The most that a tile has.
struct Tiling {
  std::int64_t rows{0}, kv_heads{0}, scores{0};
};

/// Query rows of one sequence of the batch from first_query on, heads of first_kv_head on, keys of
/// first_key on.
struct Tile {
  std::int64_t batch{0}, first_query{0}, rows{0}, first_kv_head{0}, kv_heads{0};
  std::int64_t first_key{0}, keys{0};
  ScoreMask mask{};
};

std::int64_t row_of_scores(std::int64_t keys) { return (keys + 7) / 8 * 8; }  // aligned to 16 bytes
std::int64_t group_of(const AttentionShape& shape) { return shape.heads / shape.kv_heads; }

/// As many heads as there is memory for with some hundred rows, then as many rows.
Tiling tiling_of(const AttentionShape& shape, std::int64_t most_bytes,
                 std::int64_t bytes_per_score) {
  constexpr std::int64_t enough_rows = 256;
  const std::int64_t seq = std::max<std::int64_t>(shape.seq, 1);
  const std::int64_t row =
      group_of(shape) * row_of_scores(std::max<std::int64_t>(shape.num_keys(), 1));
  const std::int64_t fits = std::max<std::int64_t>(most_bytes / (row * bytes_per_score), 1);
  Tiling tiling;
  tiling.kv_heads = std::clamp<std::int64_t>(fits / std::min(seq, enough_rows), 1, shape.kv_heads);
  tiling.rows = std::clamp<std::int64_t>(fits / tiling.kv_heads, 1, seq);
  tiling.scores = tiling.rows * tiling.kv_heads * row;
  return tiling;
}

/// Keys that queries at places `first` to `last` of one packed sequence see, and how.
void set_keys(const AttentionShape& shape, std::int64_t first, std::int64_t last, Tile& tile) {
  constexpr std::int64_t far = std::int64_t{1} << 40;
  const Visibility visibility = shape.visibility();
  const Places keys = shape.key_places();
  const Places::Run& one = keys.runs[0];
  const Places::Run& other = keys.runs[1];
  const KeyRange of_one{visible_keys(visibility, first, one).first,
                        visible_keys(visibility, last, one).last};
  const KeyRange of_other{visible_keys(visibility, first, other).first + one.count,
                          visible_keys(visibility, last, other).last + one.count};
  const bool sees_one = of_one.count() > 0, sees_other = of_other.count() > 0;
  const std::int64_t begin = sees_one ? of_one.first : of_other.first;
  const std::int64_t end = sees_other ? of_other.last : of_one.last;
  tile.first_key = begin;
  tile.keys = sees_one || sees_other ? end - begin : 0;
  ScoreMask& mask = tile.mask;
  mask.keys_of_first = one.count - begin;
  mask.first_key = one.place(begin);
  mask.key_stride = one.stride;
  mask.second_key = other.place(begin - one.count);
  mask.second_stride = other.stride;
  mask.before = visibility.window > 0 ? visibility.window - 1 : far;
  mask.after = visibility.causal ? 0 : mask.before;
  mask.begin = start_of(visibility.starts, first);
  const auto next = std::ranges::upper_bound(visibility.starts, first);
  mask.end = next == visibility.starts.end() ? far : *next;
}

/// The tiles of one sequence of the batch.
template <class Body>
void for_tiles(const AttentionShape& shape, const Tiling& tiling, std::int64_t batch,
               const Body& body) {
  const Visibility visibility = shape.visibility();
  std::int64_t first_row = 0;
  for (const Places::Run& run : shape.query_places().runs) {
    for (std::int64_t i = 0; i < run.count;) {
      Tile tile{.batch = batch, .first_query = first_row + i};
      const std::int64_t most = std::min(tiling.rows, run.count - i);
      const std::int64_t place = run.place(i);
      const auto next = std::ranges::upper_bound(visibility.starts, place);
      tile.rows = next == visibility.starts.end()
                      ? most
                      : std::min(most, (*next - place + run.stride - 1) / run.stride);
      set_keys(shape, place, run.place(i + tile.rows - 1), tile);
      tile.mask.rows = tile.rows;
      tile.mask.first_query = place;
      tile.mask.query_stride = run.stride;
      for (std::int64_t h = 0; h < shape.kv_heads; h += tiling.kv_heads) {
        tile.first_kv_head = h;
        tile.kv_heads = std::min(tiling.kv_heads, shape.kv_heads - h);
        body(tile);
      }
      i += tile.rows;
    }
    first_row += run.count;
  }
}

/// Parts of an op's tensors and of the workspace that belong to a tile.
struct Parts {
  const AttentionShape& shape;
  const Tile& tile;
  const Resources& resources;

  [[nodiscard]] std::int64_t group() const { return group_of(shape); }
  [[nodiscard]] std::int64_t heads() const { return tile.kv_heads * group(); }
  [[nodiscard]] std::int64_t first_head() const { return tile.first_kv_head * group(); }
  [[nodiscard]] std::int64_t score_stride() const { return row_of_scores(tile.keys); }
  static Tensor block(const Tensor& whole, std::int64_t row, std::int64_t rows, std::int64_t column,
                      std::int64_t cols) {
    std::byte* const data = whole.data + (row * whole.row_stride + column) * size_of(whole.dtype);
    return {1, whole.dtype, {rows, cols}, 0, whole.row_stride, data};
  }
  /// Rows of the tile's queries, `cols` columns from that of a query head on.
  [[nodiscard]] Tensor of_queries(const Tensor& t, std::int64_t head, std::int64_t cols) const {
    return block(t, tile.batch * shape.seq + tile.first_query, tile.rows, head * shape.head_dim,
                 cols);
  }
  [[nodiscard]] Tensor of_queries(const Tensor& t) const {
    return of_queries(t, first_head(), heads() * shape.head_dim);
  }
  /// Rows of its keys, the columns of its first key head.
  [[nodiscard]] Tensor of_keys(const Tensor& t) const {
    return block(t, tile.batch * shape.num_keys() + tile.first_key, tile.keys,
                 tile.first_kv_head * shape.head_dim, shape.head_dim);
  }
  /// Log-sum-exp of its queries.
  [[nodiscard]] Sums sums(const Tensor& lse) const {
    const std::int64_t row = tile.batch * shape.heads + first_head();
    return {lse.as<float>() + row * shape.seq + tile.first_query, heads(), shape.seq};
  }
  /// All of its scores; of its `member`th query head of the first group.
  [[nodiscard]] Tensor scores(std::byte* data, DType dtype) const {
    return {1, dtype, {heads() * tile.rows, tile.keys}, 0, score_stride(), data};
  }
  [[nodiscard]] Tensor scores(std::byte* data, DType dtype, std::int64_t member) const {
    return block(scores(data, dtype), member * tile.rows, tile.rows, 0, tile.keys);
  }
  /// Elements from the matrices of a key head to those of the next.
  [[nodiscard]] std::int64_t score_step() const { return group() * tile.rows * score_stride(); }
  [[nodiscard]] std::int64_t query_step() const { return group() * shape.head_dim; }
  [[nodiscard]] std::int64_t key_step() const { return shape.head_dim; }

  /// to_scores = queries keys^T.
  void append_scores(const Tensor& queries, const Tensor& keys, std::byte* to_scores,
                     Translation& to) const {
    for (std::int64_t m = 0; m < group(); ++m)
      to.calls.emplace_back(matmul_call({of_queries(queries, first_head() + m, shape.head_dim),
                                         of_keys(keys),
                                         scores(to_scores, DType::f32, m),
                                         {},
                                         false,
                                         true},
                                        resources,
                                        {tile.kv_heads, query_step(), key_step(), score_step()}));
  }
  /// [result +=] weights keys; `result` has the tile's rows, from the column of its first head on.
  void append_query_sums(std::byte* weights, const Tensor& keys, const Tensor& result,
                         bool accumulate, Translation& to) const {
    for (std::int64_t m = 0; m < group(); ++m)
      to.calls.emplace_back(
          matmul_call({scores(weights, keys.dtype, m),
                       of_keys(keys),
                       block(result, 0, tile.rows, m * shape.head_dim, shape.head_dim),
                       {},
                       false,
                       false,
                       accumulate},
                      resources, {tile.kv_heads, score_step(), key_step(), query_step()}));
  }
  /// result += weights^T queries; `result` has the tile's keys and the columns of its first key
  /// head.
  void append_key_sums(std::byte* weights, const Tensor& queries, const Tensor& result,
                       Translation& to) const {
    for (std::int64_t m = 0; m < group(); ++m)
      to.calls.emplace_back(matmul_call({scores(weights, queries.dtype, m),
                                         of_queries(queries, first_head() + m, shape.head_dim),
                                         result,
                                         {},
                                         true,
                                         false,
                                         true},
                                        resources,
                                        {tile.kv_heads, score_step(), query_step(), key_step()}));
  }
};

float scale_of(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_dim));
}

std::string refusal_of(const Tensor& q, std::initializer_list<Tensor> operands,
                       std::initializer_list<Tensor> results) {
  if (q.dtype != DType::f32 && q.dtype != DType::bf16 && q.dtype != DType::f16)
    return message("attention in ", name_of(q.dtype), "; there is one for f32, bf16 and f16");
  for (const Tensor& tensor : operands)
    if (tensor.dtype != q.dtype)
      return message("attention of ", name_of(q.dtype), " with a tensor of ",
                     name_of(tensor.dtype));
  for (const Tensor& tensor : results)
    if (tensor.dtype != q.dtype && tensor.dtype != DType::f32)
      return message("attention of ", name_of(q.dtype), " into ", name_of(tensor.dtype));
  return {};
}

/// Probabilities have the operands' dtype and, if that is f32, the place of the scores.
bool in_place(const Tensor& q) { return q.dtype == DType::f32; }
std::int64_t score_bytes(const Tensor& q) { return in_place(q) ? 4 : 4 + size_of(q.dtype); }

struct ForwardMemory {
  std::byte *scores, *probabilities, *o{nullptr}, *sums{nullptr};
};
ForwardMemory memory_of(const Attention& op, const Tiling& tiling, Workspace& workspace) {
  ForwardMemory memory{workspace.take(tiling.scores * size_of(DType::f32)), nullptr};
  memory.probabilities =
      in_place(op.q) ? memory.scores : workspace.take(tiling.scores * size_of(op.q.dtype));
  if (!op.accumulate) return memory;
  const std::int64_t rows = tiling.rows * tiling.kv_heads * group_of(op.shape);
  memory.o = workspace.take(rows * op.shape.head_dim * size_of(DType::f32));
  memory.sums = workspace.take(rows * size_of(DType::f32));
  return memory;
}

struct BackwardMemory {
  std::byte *scores, *gradients, *probabilities, *products, *slopes;
  std::byte *dk{nullptr}, *dv{nullptr};  ///< sums in f32 of one sequence of the batch
};
BackwardMemory memory_of(const AttentionBackward& op, const Tiling& tiling, Workspace& workspace) {
  BackwardMemory memory{};
  memory.scores = workspace.take(tiling.scores * size_of(DType::f32));
  memory.gradients = workspace.take(tiling.scores * size_of(DType::f32));
  const auto result = [&](std::byte* operand) {
    return in_place(op.q) ? operand : workspace.take(tiling.scores * size_of(op.q.dtype));
  };
  memory.probabilities = result(memory.scores);
  memory.products = result(memory.gradients);
  memory.slopes =
      workspace.take(tiling.rows * tiling.kv_heads * group_of(op.shape) * size_of(DType::f32));
  const std::int64_t sums = op.shape.num_keys() * op.shape.kv_heads * op.shape.head_dim;
  if (op.dk.dtype != DType::f32) memory.dk = workspace.take(sums * size_of(DType::f32));
  if (op.dv.dtype != DType::f32) memory.dv = workspace.take(sums * size_of(DType::f32));
  return memory;
}

/// To other keys' results: the tile's part is in `memory`.
void append_merge(const Attention& op, const Parts& parts, const ForwardMemory& memory,
                  const Tensor& o_part, Translation& to) {
  const Tensor o = parts.of_queries(op.o);
  const Sums sums = parts.sums(op.lse);
  const Sums part_sums{reinterpret_cast<float*>(memory.sums), parts.heads(), parts.tile.rows};
  const RowMap rows{parts.tile.rows, parts.tile.rows, 0};
  const std::int64_t head_dim = parts.shape.head_dim;
  append(to,
         MergeOutputKernel{{o_part.rows(), o_part.cols()},
                           view_of(o),
                           view_of(o_part),
                           sums,
                           part_sums,
                           rows,
                           head_dim},
         head_dim % wide == 0 ? width_of(head_dim, {o, o_part}) : 1);
  append(to, MergeSumsKernel{{o_part.rows(), parts.heads()}, sums, part_sums, rows}, 1);
}

void append_tile(const Attention& op, const Parts& parts, const ForwardMemory& memory,
                 Translation& to) {
  const Tile& tile = parts.tile;
  const Tensor o = parts.of_queries(op.o);
  if (tile.keys == 0) {
    if (op.accumulate) return;
    const Sums sums = parts.sums(op.lse);
    const Tensor lse{1, DType::f32, {sums.heads, tile.rows},
                     0, sums.rows,  reinterpret_cast<std::byte*>(sums.data)};
    append_calls(Fill{o, 0}, parts.resources, to);
    append_calls(Fill{lse, nothing}, parts.resources, to);
    return;
  }
  parts.append_scores(op.q, op.k, memory.scores, to);
  const Tensor scores = parts.scores(memory.scores, DType::f32);
  const Tensor probabilities = parts.scores(memory.probabilities, op.q.dtype);
  const Sums part_sums{reinterpret_cast<float*>(memory.sums), parts.heads(), tile.rows};
  append(to,
         SoftmaxKernel{{scores.rows(), scores.cols()},
                       view_of(scores),
                       view_of(probabilities),
                       tile.mask,
                       scale_of(op.shape),
                       op.accumulate ? part_sums : parts.sums(op.lse)},
         width_of(tile.keys, {scores, probabilities}));
  const std::int64_t cols = parts.heads() * op.shape.head_dim;
  const Tensor o_part{1, DType::f32, {tile.rows, cols}, 0, cols, memory.o};
  parts.append_query_sums(memory.probabilities, op.v, op.accumulate ? o_part : o, false, to);
  if (op.accumulate) append_merge(op, parts, memory, o_part, to);
}

/// dk and dv are sums of this sequence of the batch, in f32.
void append_tile(const AttentionBackward& op, const Parts& parts, const BackwardMemory& memory,
                 const Tensor& dk, const Tensor& dv, Translation& to) {
  const Tile& tile = parts.tile;
  const Tensor dq = parts.of_queries(op.dq);
  if (tile.keys == 0) {
    if (!op.accumulate) append_calls(Fill{dq, 0}, parts.resources, to);
    return;
  }
  const std::int64_t head_dim = op.shape.head_dim;
  const Tensor o = parts.of_queries(op.o), d_o = parts.of_queries(op.d_o);
  auto* const slopes = reinterpret_cast<float*>(memory.slopes);
  append(to,
         OutputSlopeKernel{
             {parts.heads() * tile.rows, head_dim}, view_of(o), view_of(d_o), slopes, tile.rows},
         head_dim % wide == 0 ? width_of(head_dim, {o, d_o}) : 1);
  parts.append_scores(op.q, op.k, memory.scores, to);
  parts.append_scores(op.d_o, op.v, memory.gradients, to);
  const Tensor scores = parts.scores(memory.scores, DType::f32);
  const Tensor gradients = parts.scores(memory.gradients, DType::f32);
  const Tensor probabilities = parts.scores(memory.probabilities, op.q.dtype);
  const Tensor products = parts.scores(memory.products, op.q.dtype);
  append(to,
         SoftmaxBackwardKernel{{scores.rows(), scores.cols()},
                               view_of(scores),
                               view_of(gradients),
                               view_of(probabilities),
                               view_of(products),
                               tile.mask,
                               scale_of(op.shape),
                               parts.sums(op.lse),
                               slopes},
         width_of(tile.keys, {scores, gradients, probabilities, products}));
  const auto keys_of = [&](const Tensor& sum) {
    return Parts::block(sum, tile.first_key, tile.keys, tile.first_kv_head * head_dim, head_dim);
  };
  parts.append_key_sums(memory.probabilities, op.d_o, keys_of(dv), to);
  parts.append_key_sums(memory.products, op.q, keys_of(dk), to);
  parts.append_query_sums(memory.products, op.k, dq, op.accumulate, to);
}

Tiling tiling_of(const Attention& op, const Resources& resources) {
  return tiling_of(op.shape, resources.most_score_bytes, score_bytes(op.q));
}
Tiling tiling_of(const AttentionBackward& op, const Resources& resources) {
  return tiling_of(op.shape, resources.most_score_bytes, 2 * score_bytes(op.q));
}

}  // namespace

void append_matmul_attention(const Attention& op, const Resources& resources, Translation& to) {
  to.unavailable = refusal_of(op.q, {op.k, op.v}, {op.o});
  if (!to.unavailable.empty()) return;
  const Tiling tiling = tiling_of(op, resources);
  Workspace workspace{resources.workspace};
  const ForwardMemory memory = memory_of(op, tiling, workspace);
  for (std::int64_t batch = 0; batch < op.shape.batch; ++batch)
    for_tiles(op.shape, tiling, batch, [&](const Tile& tile) {
      append_tile(op, Parts{op.shape, tile, resources}, memory, to);
    });
}

void append_matmul_attention(const AttentionBackward& op, const Resources& resources,
                             Translation& to) {
  to.unavailable = refusal_of(op.q, {op.k, op.v, op.d_o}, {op.o, op.dq, op.dk, op.dv});
  if (!to.unavailable.empty()) return;
  const AttentionShape& shape = op.shape;
  const Tiling tiling = tiling_of(op, resources);
  Workspace workspace{resources.workspace};
  const BackwardMemory memory = memory_of(op, tiling, workspace);
  const std::int64_t keys = shape.num_keys(), cols = shape.kv_heads * shape.head_dim;
  for (const Tensor& sum : {op.dk, op.dv})
    if (sum.dtype == DType::f32 && !op.accumulate) append_calls(Fill{sum, 0}, resources, to);
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const auto of_batch = [&](const Tensor& t) {
      return Parts::block(t, batch * keys, keys, 0, cols);
    };
    const auto sum_of = [&](const Tensor& result, std::byte* data) {
      if (result.dtype == DType::f32) return of_batch(result);
      const Tensor sum{1, DType::f32, {keys, cols}, 0, cols, data};
      append_calls(Fill{sum, 0}, resources, to);
      return sum;
    };
    const Tensor dk = sum_of(op.dk, memory.dk), dv = sum_of(op.dv, memory.dv);
    for_tiles(shape, tiling, batch, [&](const Tile& tile) {
      append_tile(op, Parts{shape, tile, resources}, memory, dk, dv, to);
    });
    if (op.dk.dtype != DType::f32) append_calls(Copy{dk, of_batch(op.dk)}, resources, to);
    if (op.dv.dtype != DType::f32) append_calls(Copy{dv, of_batch(op.dv)}, resources, to);
  }
}

std::int64_t matmul_attention_bytes(const Attention& op, const Resources& resources) {
  Workspace workspace{nullptr};
  (void)memory_of(op, tiling_of(op, resources), workspace);
  return workspace.used_bytes();
}

std::int64_t matmul_attention_bytes(const AttentionBackward& op, const Resources& resources) {
  Workspace workspace{nullptr};
  (void)memory_of(op, tiling_of(op, resources), workspace);
  return workspace.used_bytes();
}

}  // namespace shardmark::cuda
