#pragma once

// The loops of attention over one block of scores and over the rows of one head.

#include "core/ops.hpp"

#include <algorithm>
#include <cstdint>

namespace shardmark::kernels {

/// Copies `rows` rows of one head out of token-major rows, as f32.
void gather_head(const Tensor& from, std::int64_t token, std::int64_t head, std::int64_t rows,
                 std::int64_t head_dim, float* to);
/// And back.
void scatter_head(const float* from, const Tensor& to, std::int64_t token, std::int64_t head,
                  std::int64_t rows, std::int64_t head_dim);
/// Adds dense rows to rows `stride` elements apart.
void add_rows(const float* from, std::int64_t rows, std::int64_t head_dim, float* to,
              std::int64_t stride);
/// False if there is an infinity or a NaN in these rows of one head.
[[nodiscard]] bool is_finite(const Tensor& x, std::int64_t token, std::int64_t head,
                             std::int64_t rows, std::int64_t head_dim);

/// A block of scores: queries against keys of one run, without rows and columns at its borders of
/// which nothing is seen.
struct Block {
  std::int64_t query, rows;  ///< the first query, and how many
  std::int64_t key, cols;    ///< the first key in its run, and how many
  const KeyRange* ranges;    ///< what each of the queries sees of the run
  bool whole;                ///< every query sees every key

  /// The columns that a row sees.
  [[nodiscard]] KeyRange visible_in(std::int64_t row) const {
    if (whole) return {0, cols};
    const KeyRange& range = ranges[row];
    return {std::clamp<std::int64_t>(range.first - key, 0, cols),
            std::clamp<std::int64_t>(range.last - key, 0, cols)};
  }
};
/// That of queries [query, query + rows) and `keys`; `ranges` is of query 0. No rows if nothing is
/// seen.
[[nodiscard]] Block block_of(const KeyRange* ranges, std::int64_t query, std::int64_t rows,
                             KeyRange keys);
/// The keys between the first and the last that any of these queries sees.
[[nodiscard]] KeyRange seen_by(const KeyRange* ranges, std::int64_t rows);

/// What online softmax keeps per query row: maximum and sum so far, and the output not yet divided
/// by the sum.
struct Online {
  float *most, *total, *output;
};

/// State without any keys.
void start_rows(const Online& state, std::int64_t rows, std::int64_t head_dim);
/// State of keys seen before, from the rows' log-sum-exp; their output is there already.
void resume_rows(const Online& state, std::int64_t rows, const float* lse);
/// Turns scores into exp(scores - maximum so far), zero where masked, and rescales what was summed
/// before to the new maximum. Row 0 of scores and state is the block's first.
void online_softmax(const Block& block, float* scores, const Online& state, std::int64_t head_dim);
/// Divides the output by the sums and writes the log-sum-exp of each row; zeros and -inf for rows
/// that saw nothing.
void finish_rows(const Online& state, std::int64_t rows, std::int64_t head_dim, float* lse);

/// Scores become probabilities, zero where masked, from the log-sum-exp of their rows.
void recompute_softmax(const Block& block, float* scores, const float* lse);
/// In place of dp: p (dp - delta) scale, the gradient of the scores, zero where masked.
void softmax_gradient(const Block& block, const float* p, float* dp, const float* delta,
                      float scale);
/// delta_r = o_r . d_o_r for the rows of one head.
void row_products(const AttentionBackward& op, std::int64_t token, std::int64_t head, float* delta);

}  // namespace shardmark::kernels
