#include "core/functions.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark {
namespace {

void check_same_shape(const char* what, const Tensor& a, const Tensor& b) {
  SHARDMARK_CHECK(a.rows() == b.rows() && a.cols() == b.cols(), what, ": shapes ",
                  a.shape.to_string(), " and ", b.shape.to_string(), " differ");
}
void check_vector(const char* what, const Tensor& vector, std::int64_t length) {
  SHARDMARK_CHECK(!vector || vector.numel() == length, what, ": a vector of ", vector.numel(),
                  " where ", length, " are needed");
}
void check_dtype(const char* what, const Tensor& tensor, DType dtype) {
  SHARDMARK_CHECK(!tensor || tensor.dtype == dtype, what, ": dtype ", name_of(tensor.dtype),
                  " where ", name_of(dtype), " is needed");
}
void check_columns(const char* what, const Tensor& tensor, std::int64_t rows, std::int64_t cols) {
  SHARDMARK_CHECK(tensor.rows() == rows && tensor.cols() == cols, what, ": shape ",
                  tensor.shape.to_string(), " where ", rows, "x", cols, " is needed");
}

struct Extents {
  std::int64_t rows, cols;
};
Extents extents(const Tensor& t, bool transposed) {
  return transposed ? Extents{t.cols(), t.rows()} : Extents{t.rows(), t.cols()};
}

void check_attention(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& o, const Tensor& lse) {
  SHARDMARK_CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: ", s.heads,
                  " query heads do not share ", s.kv_heads, " KV heads evenly");
  SHARDMARK_CHECK(s.queries.count() == 0 || s.queries.count() == s.seq, "attention: places of ",
                  s.queries.count(), " queries for seq ", s.seq);
  const std::int64_t tokens = s.batch * s.seq, keys = s.batch * s.num_keys();
  check_columns("attention q", q, tokens, s.heads * s.head_dim);
  check_columns("attention o", o, tokens, s.heads * s.head_dim);
  check_columns("attention k", k, keys, s.kv_heads * s.head_dim);
  check_columns("attention v", v, keys, s.kv_heads * s.head_dim);
  check_vector("attention lse", lse, tokens * s.heads);
  check_dtype("attention lse", lse, DType::f32);
}

void check_collective(const char* what, const Tensor& part, const Tensor& whole,
                      const Group& group) {
  SHARDMARK_CHECK(part.contiguous() && whole.contiguous(), what, " needs contiguous tensors");
  SHARDMARK_CHECK(part.dtype == whole.dtype && part.numel() * group.size == whole.numel(), what,
                  " over ", group.size, " ranks: ", part.numel(), " elements do not tile ",
                  whole.numel());
}

/// y takes as many elements as x has.
void check_copy(const char* what, const Tensor& x, const Tensor& y) {
  SHARDMARK_CHECK(x.contiguous() && y.contiguous(), what, " needs contiguous tensors");
  SHARDMARK_CHECK(x.dtype == y.dtype && x.numel() == y.numel(), what, ": ", x.numel(), " x ",
                  name_of(x.dtype), " into ", y.numel(), " x ", name_of(y.dtype));
}
void check_root(const char* what, int root, const Group& group) {
  SHARDMARK_CHECK(root >= 0 && root < group.size, what, ": root ", root, " is not a member of ",
                  group.to_string(), "; members are 0 to ", group.size - 1);
}

}  // namespace

void matmul(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options) {
  matmul_bias(rank, a, b, Tensor{}, c, options);
}

void matmul_bias(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
                 const MatmulOptions& options) {
  const auto [m, k] = extents(a, options.transpose_a);
  const auto [k_b, n] = extents(b, options.transpose_b);
  SHARDMARK_CHECK(k == k_b && c.rows() == m && c.cols() == n, "matmul: ", m, "x", k, " times ", k_b,
                  "x", n, " into ", c.shape.to_string());
  check_dtype("matmul b", b, a.dtype);
  check_dtype("matmul bias", bias, a.dtype);
  check_vector("matmul bias", bias, n);
  SHARDMARK_CHECK(c.dtype == a.dtype || c.dtype == DType::f32, "matmul: result dtype ",
                  name_of(c.dtype), " for operands of ", name_of(a.dtype));
  rank.submit(Matmul{a, b, c, bias, options.transpose_a, options.transpose_b, options.accumulate,
                     options.reuse_b},
              Lane::compute);
}

void add(Rank& rank, const Tensor& a, const Tensor& b, const Tensor& y) {
  check_same_shape("add", a, b);
  check_same_shape("add", a, y);
  rank.submit(Add{a, b, y}, Lane::compute);
}
void add_bias(Rank& rank, const Tensor& x, const Tensor& bias, const Tensor& y) {
  check_same_shape("add_bias", x, y);
  check_vector("add_bias", bias, x.cols());
  rank.submit(AddBias{x, bias, y}, Lane::compute);
}
void sum_rows(Rank& rank, const Tensor& x, const Tensor& y, bool accumulate) {
  check_vector("sum_rows", y, x.cols());
  check_dtype("sum_rows", y, DType::f32);
  rank.submit(SumRows{x, y, accumulate}, Lane::compute);
}
void copy(Rank& rank, const Tensor& x, const Tensor& y) {
  check_same_shape("copy", x, y);
  rank.submit(Copy{x, y}, Lane::compute);
}
void fill(Rank& rank, const Tensor& x, float value) { rank.submit(Fill{x, value}, Lane::compute); }

void gelu(Rank& rank, const Tensor& x, const Tensor& y, GeluKind kind) {
  check_same_shape("gelu", x, y);
  rank.submit(Gelu{x, y, kind}, Lane::compute);
}
void gelu_backward(Rank& rank, const Tensor& x, const Tensor& dy, const Tensor& dx, GeluKind kind) {
  check_same_shape("gelu_backward", x, dy);
  check_same_shape("gelu_backward", x, dx);
  rank.submit(GeluBackward{x, dy, dx, kind}, Lane::compute);
}
void swiglu(Rank& rank, const Tensor& gate, const Tensor& up, const Tensor& y) {
  check_same_shape("swiglu", gate, up);
  check_same_shape("swiglu", gate, y);
  rank.submit(SwiGlu{gate, up, y}, Lane::compute);
}
void swiglu_backward(Rank& rank, const SwiGluBackward& op) {
  for (const Tensor* other : {&op.up, &op.dy, &op.dgate, &op.dup})
    check_same_shape("swiglu_backward", op.gate, *other);
  rank.submit(op, Lane::compute);
}
void norm(Rank& rank, const Norm& op) {
  check_same_shape("norm", op.x, op.y);
  check_vector("norm gain", op.gain, op.x.cols());
  check_vector("norm bias", op.bias, op.x.cols());
  check_columns("norm stats", op.stats, op.x.rows(), 2);
  check_dtype("norm stats", op.stats, DType::f32);
  rank.submit(op, Lane::compute);
}
void norm_backward(Rank& rank, const NormBackward& op) {
  check_same_shape("norm_backward", op.x, op.dy);
  check_same_shape("norm_backward", op.x, op.dx);
  for (const Tensor* vector : {&op.gain, &op.dgain, &op.dbias})
    check_vector("norm_backward", *vector, op.x.cols());
  check_columns("norm_backward stats", op.stats, op.x.rows(), 2);
  check_dtype("norm_backward dgain", op.dgain, DType::f32);
  check_dtype("norm_backward dbias", op.dbias, DType::f32);
  rank.submit(op, Lane::compute);
}

void attention(Rank& rank, const Attention& op) {
  check_attention(op.shape, op.q, op.k, op.v, op.o, op.lse);
  if (op.accumulate) check_dtype("attention that accumulates: o", op.o, DType::f32);
  rank.submit(op, Lane::compute);
}
void attention_backward(Rank& rank, const AttentionBackward& op) {
  check_attention(op.shape, op.q, op.k, op.v, op.o, op.lse);
  check_same_shape("attention_backward", op.o, op.d_o);
  check_same_shape("attention_backward", op.q, op.dq);
  check_same_shape("attention_backward", op.k, op.dk);
  check_same_shape("attention_backward", op.v, op.dv);
  if (op.accumulate)
    for (const Tensor& sum : {op.dq, op.dk, op.dv})
      check_dtype("attention_backward that accumulates: gradient", sum, DType::f32);
  rank.submit(op, Lane::compute);
}
void rope(Rank& rank, const Rope& op) {
  SHARDMARK_CHECK(op.head_dim % 2 == 0, "rope: head_dim ", op.head_dim, " is odd");
  SHARDMARK_CHECK(op.x.cols() == op.num_heads * op.head_dim && op.x.rows() % op.seq == 0,
                  "rope: shape ", op.x.shape.to_string(), " for ", op.num_heads, " heads of ",
                  op.head_dim, " and seq ", op.seq);
  SHARDMARK_CHECK(op.places.count() == 0 || op.places.count() == op.seq, "rope: places of ",
                  op.places.count(), " rows for seq ", op.seq);
  rank.submit(op, Lane::compute);
}

void embedding(Rank& rank, const Embedding& op) {
  check_dtype("embedding ids", op.ids, DType::i32);
  check_vector("embedding ids", op.ids, op.y.rows());
  SHARDMARK_CHECK(op.table.cols() == op.y.cols(), "embedding: rows of ", op.table.cols(), " into ",
                  op.y.shape.to_string());
  rank.submit(op, Lane::compute);
}
void embedding_backward(Rank& rank, const EmbeddingBackward& op) {
  check_dtype("embedding_backward ids", op.ids, DType::i32);
  check_dtype("embedding_backward dtable", op.dtable, DType::f32);
  check_vector("embedding_backward ids", op.ids, op.dy.rows());
  SHARDMARK_CHECK(op.dtable.cols() == op.dy.cols(), "embedding_backward: rows of ",
                  op.dtable.cols(), " from ", op.dy.shape.to_string());
  rank.submit(op, Lane::compute);
}
void row_max(Rank& rank, const Tensor& logits, const Tensor& maximum) {
  check_vector("row_max", maximum, logits.rows());
  check_dtype("row_max", maximum, DType::f32);
  rank.submit(RowMax{logits, maximum}, Lane::compute);
}
void cross_entropy_sum(Rank& rank, const CrossEntropySum& op) {
  check_vector("cross_entropy_sum targets", op.targets, op.logits.rows());
  check_vector("cross_entropy_sum maximum", op.maximum, op.logits.rows());
  check_vector("cross_entropy_sum partials", op.partials, 2 * op.logits.rows());
  check_dtype("cross_entropy_sum targets", op.targets, DType::i32);
  rank.submit(op, Lane::compute);
}
void cross_entropy_loss(Rank& rank, const CrossEntropyLoss& op) {
  check_vector("cross_entropy_loss partials", op.partials, 2 * op.loss.numel());
  check_vector("cross_entropy_loss maximum", op.maximum, op.loss.numel());
  rank.submit(op, Lane::compute);
}
void cross_entropy_backward(Rank& rank, const CrossEntropyBackward& op) {
  check_same_shape("cross_entropy_backward", op.logits, op.dlogits);
  check_vector("cross_entropy_backward targets", op.targets, op.logits.rows());
  check_vector("cross_entropy_backward partials", op.partials, 2 * op.logits.rows());
  rank.submit(op, Lane::compute);
}

void combine(Rank& rank, const Tensor& x, const Tensor& y, Reduction reduction) {
  check_same_shape("combine", x, y);
  check_dtype("combine", x, y.dtype);
  rank.submit(Combine{x, y, reduction}, Lane::compute);
}
void divide(Rank& rank, const Tensor& x, int divisor) {
  SHARDMARK_CHECK(divisor > 0, "divide by ", divisor, "; a positive number is needed");
  rank.submit(Divide{x, divisor}, Lane::compute);
}

void all_reduce(Rank& rank, const Tensor& x, const Group& group, Lane lane, Reduction reduction) {
  SHARDMARK_CHECK(x.contiguous(), "all_reduce needs a contiguous tensor");
  rank.submit(AllReduce{x, group, reduction}, lane);
}
void all_reduce(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane,
                Reduction reduction) {
  check_copy("all_reduce", x, y);
  rank.submit(AllReduce{x, group, reduction, y}, lane);
}
void all_gather(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane) {
  check_collective("all_gather", x, y, group);
  rank.submit(AllGather{x, y, group}, lane);
}
void reduce_scatter(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane,
                    Reduction reduction) {
  check_collective("reduce_scatter", y, x, group);
  rank.submit(ReduceScatter{x, y, group, reduction}, lane);
}
void all_to_all(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, Lane lane) {
  check_copy("all_to_all", x, y);
  SHARDMARK_CHECK(x.numel() % group.size == 0, "all_to_all over ", group.size,
                  " ranks: ", x.numel(), " elements do not divide into equal blocks");
  SHARDMARK_CHECK(!overlap(x, y), "all_to_all needs tensors that do not overlap");
  rank.submit(AllToAll{x, y, group}, lane);
}
void all_to_all_v(Rank& rank, const Tensor& x, const Tensor& y, const Group& group,
                  std::span<const std::int64_t> counts, Lane lane) {
  SHARDMARK_CHECK(x.contiguous() && y.contiguous() && x.dtype == y.dtype,
                  "all_to_all_v needs contiguous tensors of one dtype");
  const auto n = static_cast<std::size_t>(group.size);
  const auto me = static_cast<std::size_t>(group.position);
  SHARDMARK_CHECK(counts.size() == n * n, "all_to_all_v over ", n, " ranks: ", counts.size(),
                  " counts where ", n * n, " are needed");
  SHARDMARK_CHECK(std::ranges::all_of(counts, [](std::int64_t count) { return count >= 0; }),
                  "all_to_all_v: a count is negative");
  std::int64_t sent = 0, received = 0;
  for (std::size_t peer = 0; peer < n; ++peer) {
    sent += counts[me * n + peer];
    received += counts[peer * n + me];
  }
  SHARDMARK_CHECK(sent == x.numel() && received == y.numel(), "all_to_all_v: ", x.numel(), " and ",
                  y.numel(), " elements where the counts say ", sent, " and ", received);
  SHARDMARK_CHECK(!overlap(x, y), "all_to_all_v needs tensors that do not overlap");
  rank.submit(AllToAllV{x, y, group, counts}, lane);
}
void broadcast(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
               Lane lane) {
  check_root("broadcast", root, group);
  if (group.position == root)
    check_copy("broadcast", x, y);
  else
    SHARDMARK_CHECK(y.contiguous(), "broadcast needs a contiguous tensor");
  rank.submit(Broadcast{x, y, group, root}, lane);
}
void reduce_to_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                    Lane lane, Reduction reduction) {
  check_root("reduce", root, group);
  if (group.position == root)
    check_copy("reduce", x, y);
  else
    SHARDMARK_CHECK(x.contiguous(), "reduce needs a contiguous tensor");
  rank.submit(Reduce{x, y, group, root, reduction}, lane);
}
void gather_to_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                    Lane lane) {
  check_root("gather", root, group);
  if (group.position == root)
    check_collective("gather", x, y, group);
  else
    SHARDMARK_CHECK(x.contiguous(), "gather needs a contiguous tensor");
  rank.submit(Gather{x, y, group, root}, lane);
}
void scatter_from_root(Rank& rank, const Tensor& x, const Tensor& y, const Group& group, int root,
                       Lane lane) {
  check_root("scatter", root, group);
  if (group.position == root)
    check_collective("scatter", y, x, group);
  else
    SHARDMARK_CHECK(y.contiguous(), "scatter needs a contiguous tensor");
  rank.submit(Scatter{x, y, group, root}, lane);
}
void send_recv(Rank& rank, const Tensor& x, int to, const Tensor& y, int from, const Group& group,
               Lane lane) {
  for (const int peer : {to, from})
    SHARDMARK_CHECK(peer >= -1 && peer < group.size, "send_recv with member ", peer, " of ",
                    group.to_string(), "; members are 0 to ", group.size - 1, ", -1 for nobody");
  SHARDMARK_CHECK((to >= 0) == bool{x} && (from >= 0) == bool{y},
                  "send_recv: a tensor without a peer, or a peer without a tensor");
  SHARDMARK_CHECK(x.contiguous() && y.contiguous(), "send_recv needs contiguous tensors");
  SHARDMARK_CHECK((to == group.position) == (from == group.position),
                  "send_recv with itself has to send and receive in one call");
  rank.submit(SendRecv{x, y, group, to, from}, lane);
}
void barrier(Rank& rank, const Group& group, Lane lane) { rank.submit(Barrier{group}, lane); }

}  // namespace shardmark
