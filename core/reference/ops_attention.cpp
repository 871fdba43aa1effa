#include "core/reference/matrix.hpp"
#include "core/reference/ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace shardmark::reference {
namespace {

/// One query of one head: its row and columns in q and o, the rows of the keys it sees and their
/// columns in k and v.
struct Query {
  std::int64_t row, column, key_column;
  std::int64_t lse_row, lse_column;
  std::vector<std::int64_t> keys;
};

/// Whether a query sees a key, by their places.
bool sees(const Visibility& visibility, std::int64_t query, std::int64_t key) {
  if (visibility.causal && key > query) return false;
  if (visibility.window > 0 && std::abs(query - key) >= visibility.window) return false;
  return start_of(visibility.starts, query) == start_of(visibility.starts, key);
}

template <class Body>
void for_queries(const AttentionShape& s, const Body& body) {
  const Visibility visibility = s.visibility();
  const Places queries = s.query_places(), keys = s.key_places();
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.seq; ++i) {
      Query query{b * s.seq + i, 0, 0, 0, i, {}};
      for (std::int64_t j = 0; j < keys.count(); ++j)
        if (sees(visibility, queries[i], keys[j])) query.keys.push_back(b * keys.count() + j);
      for (std::int64_t h = 0; h < s.heads; ++h) {
        query.column = h * s.head_dim;
        query.key_column = h / (s.heads / s.kv_heads) * s.head_dim;
        query.lse_row = b * s.heads + h;
        body(query);
      }
    }
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

constexpr double nothing = -std::numeric_limits<double>::infinity();

/// exp(score - lse); 0 where there is nothing to sum, be it that all scores are -inf.
double probability(double score, double lse) {
  return lse == nothing && score == nothing ? 0 : std::exp(score - lse);
}

/// log(sum of exp(values)), -inf of none.
double log_sum_exp(const std::vector<double>& values) {
  double highest = nothing, total = 0;
  for (const double value : values) highest = std::max(highest, value);
  for (const double value : values) total += probability(value, highest);
  return highest + (total == 0 ? 0 : std::log(total));
}

/// The scores of the keys that a query sees.
void find_scores(const AttentionShape& s, const Query& query, const Matrix& q, const Matrix& k,
                 std::vector<double>& scores) {
  scores.clear();
  for (const std::int64_t row : query.keys)
    scores.push_back(score_scale(s) * dot(q.row(query.row) + query.column,
                                          k.row(row) + query.key_column, s.head_dim));
}

}  // namespace

void run(const Attention& op) {
  const Matrix q{op.q}, k{op.k}, v{op.v};
  const std::int64_t head_dim = op.shape.head_dim;
  Matrix o{q.rows(), q.cols()}, lse{op.shape.batch * op.shape.heads, op.shape.seq};
  if (op.accumulate) o = Matrix{op.o};
  const Matrix old_lse{op.lse};
  std::vector<double> scores;
  for_queries(op.shape, [&](const Query& query) {
    double& sum = lse(query.lse_row, query.lse_column);
    double* const output = o.row(query.row) + query.column;
    find_scores(op.shape, query, q, k, scores);
    sum = log_sum_exp(scores);
    if (op.accumulate) {
      const double old = old_lse[query.lse_row * op.shape.seq + query.lse_column];
      sum = log_sum_exp({old, sum});
      for (std::int64_t c = 0; c < head_dim; ++c) output[c] *= probability(old, sum);
    }
    for (std::size_t j = 0; j < scores.size(); ++j)
      add_scaled(v.row(query.keys[j]) + query.key_column, probability(scores[j], sum), head_dim,
                 output);
  });
  o.store(op.o);
  lse.store(op.lse);
}

void run(const AttentionBackward& op) {
  const Matrix q{op.q}, k{op.k}, v{op.v}, o{op.o}, d_o{op.d_o}, lse{op.lse};
  const auto sums = [&](const Tensor& gradient) {
    return op.accumulate ? Matrix{gradient} : Matrix{gradient.rows(), gradient.cols()};
  };
  Matrix dq = sums(op.dq), dk = sums(op.dk), dv = sums(op.dv);
  const std::int64_t head_dim = op.shape.head_dim;
  std::vector<double> scores, own_output;
  for_queries(op.shape, [&](const Query& query) {
    const double* const output_gradient = d_o.row(query.row) + query.column;
    find_scores(op.shape, query, q, k, scores);
    double sum = lse[query.lse_row * op.shape.seq + query.lse_column];
    const double* output = o.row(query.row) + query.column;
    // Tensors hold o and lse rounded. If these are all the keys, better ones are at hand.
    const double own_sum = log_sum_exp(scores);
    if (static_cast<float>(own_sum) == static_cast<float>(sum)) {
      sum = own_sum;
      own_output.assign(static_cast<std::size_t>(head_dim), 0);
      for (std::size_t j = 0; j < scores.size(); ++j)
        add_scaled(v.row(query.keys[j]) + query.key_column, probability(scores[j], sum), head_dim,
                   own_output.data());
      output = own_output.data();
    }
    const double mean_dp = dot(output, output_gradient, head_dim);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const std::int64_t row = query.keys[j];
      const double dp = dot(output_gradient, v.row(row) + query.key_column, head_dim);
      const double p = probability(scores[j], sum);
      const double score_gradient = p * (dp - mean_dp) * score_scale(op.shape);
      add_scaled(k.row(row) + query.key_column, score_gradient, head_dim,
                 dq.row(query.row) + query.column);
      add_scaled(q.row(query.row) + query.column, score_gradient, head_dim,
                 dk.row(row) + query.key_column);
      add_scaled(output_gradient, p, head_dim, dv.row(row) + query.key_column);
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
  const Places places = op.places.count() > 0 ? op.places : Places::all(op.seq);
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(static_cast<double>(op.theta),
                 -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim));
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const std::int64_t place = places[r % op.seq];
      const double angle = static_cast<double>(place - start_of(op.starts, place)) * frequency *
                           (op.inverse ? -1 : 1);
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
