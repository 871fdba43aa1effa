#include "core/reference/matrix.hpp"
#include "core/reference/ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace shardmark::reference {
namespace {

/// One query of one head: its row and columns in q and o, those of its keys in k and v.
struct Query {
  std::int64_t row, column, first_key, num_keys, key_column;
  std::int64_t lse_row, lse_column;
};

template <class Body>
void for_queries(const AttentionShape& s, const Body& body) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.seq; ++i)
        body(Query{b * s.seq + i, h * s.head_dim, b * s.seq, s.causal ? i + 1 : s.seq,
                   h / (s.heads / s.kv_heads) * s.head_dim, b * s.heads + h, i});
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

void add_scaled(const double* row, double factor, std::int64_t count, double* to) {
  for (std::int64_t c = 0; c < count; ++c) to[c] += factor * row[c];
}

double score_scale(const AttentionShape& s) {
  return 1 / std::sqrt(static_cast<double>(s.head_dim));
}

/// The probabilities of a query's keys go to `p`; returns the log-sum-exp of its scores.
double softmax(const AttentionShape& s, const Query& query, const Matrix& q, const Matrix& k,
               std::vector<double>& p) {
  p.resize(static_cast<std::size_t>(query.num_keys));
  double highest = -std::numeric_limits<double>::infinity();
  std::int64_t row = query.first_key;
  for (double& score : p) {
    score = score_scale(s) *
            dot(q.row(query.row) + query.column, k.row(row++) + query.key_column, s.head_dim);
    highest = std::max(highest, score);
  }
  double total = 0;
  for (double& score : p) total += score = std::exp(score - highest);
  for (double& probability : p) probability /= total;
  return highest + std::log(total);
}

}  // namespace

void run(const Attention& op) {
  const Matrix q{op.q}, k{op.k}, v{op.v};
  Matrix o{q.rows(), q.cols()}, lse{op.shape.batch * op.shape.heads, op.shape.seq};
  std::vector<double> p;
  for_queries(op.shape, [&](const Query& query) {
    lse(query.lse_row, query.lse_column) = softmax(op.shape, query, q, k, p);
    std::int64_t row = query.first_key;
    for (const double probability : p)
      add_scaled(v.row(row++) + query.key_column, probability, op.shape.head_dim,
                 o.row(query.row) + query.column);
  });
  o.store(op.o);
  lse.store(op.lse);
}

void run(const AttentionBackward& op) {
  const Matrix q{op.q}, k{op.k}, v{op.v}, d_o{op.d_o};
  Matrix dq{q.rows(), q.cols()}, dk{k.rows(), k.cols()}, dv{v.rows(), v.cols()};
  const std::int64_t head_dim = op.shape.head_dim;
  std::vector<double> p, dp;
  for_queries(op.shape, [&](const Query& query) {
    (void)softmax(op.shape, query, q, k, p);
    dp.resize(p.size());
    const double* const output_gradient = d_o.row(query.row) + query.column;
    double mean_dp = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::int64_t row = query.first_key + static_cast<std::int64_t>(j);
      dp[j] = dot(output_gradient, v.row(row) + query.key_column, head_dim);
      mean_dp += p[j] * dp[j];
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::int64_t row = query.first_key + static_cast<std::int64_t>(j);
      const double score_gradient = p[j] * (dp[j] - mean_dp) * score_scale(op.shape);
      add_scaled(k.row(row) + query.key_column, score_gradient, head_dim,
                 dq.row(query.row) + query.column);
      add_scaled(q.row(query.row) + query.column, score_gradient, head_dim,
                 dk.row(row) + query.key_column);
      add_scaled(output_gradient, p[j], head_dim, dv.row(row) + query.key_column);
    }
  });
  dq.store(op.dq);
  dk.store(op.dk);
  dv.store(op.dv);
}

void run(const Rope& op) {
  const Matrix x{op.x};
  Matrix y{x.rows(), x.cols()};
  const std::int64_t half = op.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(static_cast<double>(op.theta),
                 -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim));
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const double angle = static_cast<double>(r % op.seq) * frequency * (op.inverse ? -1 : 1);
      const double cosine = std::cos(angle), sine = std::sin(angle);
      for (std::int64_t head = 0; head < op.num_heads; ++head) {
        const std::int64_t lower = head * op.head_dim + i, upper = lower + half;
        y(r, lower) = x(r, lower) * cosine - x(r, upper) * sine;
        y(r, upper) = x(r, upper) * cosine + x(r, lower) * sine;
      }
    }
  }
  y.store(op.x);
}

}  // namespace shardmark::reference
