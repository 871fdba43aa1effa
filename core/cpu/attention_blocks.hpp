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

/// One block of scores: `rows` queries against `cols` keys. Row r sees the first
/// `visible + r` keys, all of them when not causal.
struct Block {
  float* scores;
  std::int64_t rows, cols, visible;
  [[nodiscard]] std::int64_t visible_in(std::int64_t row) const {
    return std::clamp<std::int64_t>(visible + row, 0, cols);
  }
};

/// What online softmax keeps per query row: maximum and sum so far, and the output not yet divided
/// by the sum.
struct Online {
  float *most, *total, *output;
};

/// Turns scores into exp(scores - maximum so far), zero where masked, and rescales what was summed
/// before to the new maximum.
void online_softmax(const Block& block, const Online& state, std::int64_t head_dim);
/// Divides the output by the sums and writes the log-sum-exp of each row.
void finish_rows(const Online& state, std::int64_t rows, std::int64_t head_dim, float* lse);

/// Scores become probabilities, from the log-sum-exp of their rows.
void recompute_softmax(const Block& block, const float* lse);
/// In place of dp: p (dp - delta) scale, the gradient of the scores; `block` holds p.
void softmax_gradient(const Block& block, float* dp, const float* delta, float scale);
/// delta_r = o_r . d_o_r for the rows of one head.
void row_products(const AttentionBackward& op, std::int64_t token, std::int64_t head, float* delta);

}  // namespace shardmark::kernels
