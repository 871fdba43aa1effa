#pragma once

// What attention by matmuls needs between the matmuls: the softmax of scores and its gradient. Rows
// of scores are query rows, head after head; columns are keys.

#include "core/cuda/kernels/merge.hpp"
#include "core/cuda/kernels/view.hpp"

#include <cmath>
#include <cstdint>

namespace shardmark::cuda {

/// Who sees whom, by places. The queries of a head are of one run and one packed sequence; the keys
/// are the end of one run and the beginning of another, either of which may be empty.
struct ScoreMask {
  std::int64_t rows{1};  ///< of one head
  std::int64_t first_query{0}, query_stride{1};
  std::int64_t keys_of_first{0};  ///< columns from here on are of the second run
  /// The places at which the runs would have column 0.
  std::int64_t first_key{0}, key_stride{1}, second_key{0}, second_stride{1};
  std::int64_t begin{0}, end{0};     ///< the sequence's places
  std::int64_t before{0}, after{0};  ///< how far a query sees

  [[nodiscard]] SHARDMARK_BOTH bool sees(std::int64_t row, std::int64_t column) const {
    const std::int64_t query = first_query + row % rows * query_stride;
    const std::int64_t key = column < keys_of_first ? first_key + column * key_stride
                                                    : second_key + column * second_stride;
    return key >= begin && key < end && key >= query - before && key <= query + after;
  }
};

/// Probabilities, which may replace the scores if they have the same dtype, and the log of the sum
/// of exponentials of each row: -inf, and probabilities of 0, where nothing is seen.
struct SoftmaxKernel {
  static constexpr const char* name = "shardmark_softmax";
  struct State {
    float highest, total;  ///< of exp(score - highest)
  };
  Extent extent;
  View scores, probabilities;
  ScoreMask mask;
  float scale;
  Sums sums;  ///< of the first query row on

  SHARDMARK_BOTH static State start() { return {-INFINITY, 0}; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const Values<width> values = masked<width>(row, column);
    State these = start();
    for (int i = 0; i < width; ++i) these.highest = larger(these.highest, values.at[i]);
    if (these.highest == -INFINITY) return;
    for (int i = 0; i < width; ++i) these.total += expf(values.at[i] - these.highest);
    state = joined(state, these);
  }
  SHARDMARK_BOTH static State joined(const State& a, const State& b) {
    const float highest = larger(a.highest, b.highest);
    if (highest == -INFINITY) return a;
    return {highest, a.total * expf(a.highest - highest) + b.total * expf(b.highest - highest)};
  }
  template <int width>
  SHARDMARK_BOTH void apply(const State& state, std::int64_t row, std::int64_t column) const {
    Values<width> values = masked<width>(row, column);
    const float share = state.total > 0 ? 1 / state.total : 0;
    const float highest = state.total > 0 ? state.highest : 0;
    for (int i = 0; i < width; ++i) values.at[i] = expf(values.at[i] - highest) * share;
    store(probabilities, row, column, values);
  }
  SHARDMARK_BOTH void finish(const State& state, std::int64_t row) const {
    sums.of(0, row / mask.rows, row % mask.rows) =
        state.total > 0 ? state.highest + logf(state.total) : -INFINITY;
  }

 private:
  template <int width>
  [[nodiscard]] SHARDMARK_BOTH Values<width> masked(std::int64_t row, std::int64_t column) const {
    Values<width> values = load<width>(scores, row, column);
    for (int i = 0; i < width; ++i)
      values.at[i] = mask.sees(row, column + i) ? values.at[i] * scale : -INFINITY;
    return values;
  }
};

/// The sum over a head's columns of o d_o, for each row of scores.
struct OutputSlopeKernel {
  static constexpr const char* name = "shardmark_output_slope";
  using State = float;
  Extent extent;  ///< rows of scores, columns of a head
  View o, d_o;
  float* slopes;
  std::int64_t rows;  ///< of one head

  SHARDMARK_BOTH static State start() { return 0; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row % rows, of_head = row / rows * extent.cols + column;
    const Values<width> outputs = load<width>(o, at, of_head);
    const Values<width> gradients = load<width>(d_o, at, of_head);
    for (int i = 0; i < width; ++i) state += outputs.at[i] * gradients.at[i];
  }
  SHARDMARK_BOTH static State joined(State a, State b) { return a + b; }
  template <int width>
  SHARDMARK_BOTH void apply(State, std::int64_t, std::int64_t) const {}
  SHARDMARK_BOTH void finish(State state, std::int64_t row) const { slopes[row] = state; }
};

/// From scores and the gradient of probabilities: probabilities, and the gradient of the products
/// that scores are. Each may replace an operand of its dtype.
struct SoftmaxBackwardKernel {
  static constexpr const char* name = "shardmark_softmax_bwd";
  Extent extent;
  View scores, gradients;        ///< of probabilities
  View probabilities, products;  ///< results
  ScoreMask mask;
  float scale;
  Sums sums;            ///< of the first query row on
  const float* slopes;  ///< OutputSlopeKernel's
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const float sum = sums.of(0, row / mask.rows, row % mask.rows), slope = slopes[row];
    Values<width> values = load<width>(scores, row, column);
    Values<width> slopes_of = load<width>(gradients, row, column);
    for (int i = 0; i < width; ++i) {
      const bool counts = sum > -INFINITY && mask.sees(row, column + i);
      values.at[i] = counts ? expf(values.at[i] * scale - sum) : 0;
      slopes_of.at[i] = values.at[i] * (slopes_of.at[i] - slope) * scale;
    }
    store(probabilities, row, column, values);
    store(products, row, column, slopes_of);
  }
};

}  // namespace shardmark::cuda
