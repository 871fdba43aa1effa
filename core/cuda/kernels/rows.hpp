#pragma once

// Kernels that need a sum (or the like) over a row, by the threads of a block, or over a column, by
// some threads of several rows. A thread takes its share into a State; states are joined in a tree
// of which all threads know the root; then a row's elements are made from it.
//
// A kernel has: State; start(); take<width>(state, row, column); joined(a, b); for rows also
// apply<width>(state, row, column) for each element and finish(state, row) once; for columns
// finish(state, column) once.

#include "core/cuda/kernels/view.hpp"

#include <cmath>
#include <cstdint>

namespace shardmark::cuda {

/// Mean and sum of squared distances from it of `count` numbers. Joined as in T. Chan, G. Golub and
/// R. LeVeque (1979): a large mean does not spoil the variance.
struct Moments {
  float count, mean, squares;
};
SHARDMARK_BOTH inline Moments joined_moments(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0) return a;
  const float distance = b.mean - a.mean;
  return {count, (a.count * a.mean + b.count * b.mean) / count,
          a.squares + b.squares + distance * distance * (a.count * b.count / count)};
}

struct NormKernel {
  static constexpr const char* name = "shardmark_norm";
  using State = Moments;
  Extent extent;
  View x, gain, bias, y, stats;
  bool has_bias, is_rms;
  float epsilon;

  SHARDMARK_BOTH static State start() { return {0, 0, 0}; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const Values<width> values = load<width>(x, row, column);
    Moments these{static_cast<float>(width), 0, 0};
    if (!is_rms)
      for (int i = 0; i < width; ++i) these.mean += values.at[i] / width;
    for (int i = 0; i < width; ++i) {
      const float distance = values.at[i] - these.mean;
      these.squares += distance * distance;
    }
    state = joined_moments(state, these);
  }
  SHARDMARK_BOTH static State joined(const State& a, const State& b) {
    return joined_moments(a, b);
  }
  template <int width>
  SHARDMARK_BOTH void apply(const State& state, std::int64_t row, std::int64_t column) const {
    Values<width> values = load<width>(x, row, column);
    const Values<width> gains = load<width>(gain, 0, column);
    Values<width> biases{};
    if (has_bias) biases = load<width>(bias, 0, column);
    const float scale = scale_of(state);
    for (int i = 0; i < width; ++i)
      values.at[i] = (values.at[i] - state.mean) * scale * gains.at[i] + biases.at[i];
    store(y, row, column, values);
  }
  SHARDMARK_BOTH void finish(const State& state, std::int64_t row) const {
    store_one(stats, row, 0, state.mean);
    store_one(stats, row, 1, scale_of(state));
  }

 private:
  [[nodiscard]] SHARDMARK_BOTH float scale_of(const State& state) const {
    return 1 / sqrtf(state.squares / state.count + epsilon);
  }
};

struct NormBackwardKernel {
  static constexpr const char* name = "shardmark_norm_bwd";
  struct State {
    float slope, projection;
  };
  Extent extent;
  View x, gain, stats, dy, dx;
  bool is_rms;

  SHARDMARK_BOTH static State start() { return {0, 0}; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const float mean = load_one(stats, row, 0), scale = load_one(stats, row, 1);
    const Values<width> values = load<width>(x, row, column);
    const Values<width> gains = load<width>(gain, 0, column);
    const Values<width> gradients = load<width>(dy, row, column);
    for (int i = 0; i < width; ++i) {
      const float slope = gradients.at[i] * gains.at[i];
      state.slope += slope;
      state.projection += slope * ((values.at[i] - mean) * scale);
    }
  }
  SHARDMARK_BOTH static State joined(const State& a, const State& b) {
    return {a.slope + b.slope, a.projection + b.projection};
  }
  template <int width>
  SHARDMARK_BOTH void apply(const State& state, std::int64_t row, std::int64_t column) const {
    const float mean = load_one(stats, row, 0), scale = load_one(stats, row, 1);
    const auto cols = static_cast<float>(extent.cols);
    const float mean_slope = is_rms ? 0 : state.slope / cols;
    const float mean_projection = state.projection / cols;
    Values<width> values = load<width>(x, row, column);
    const Values<width> gains = load<width>(gain, 0, column);
    const Values<width> gradients = load<width>(dy, row, column);
    for (int i = 0; i < width; ++i) {
      const float normalised = (values.at[i] - mean) * scale;
      values.at[i] =
          scale * (gradients.at[i] * gains.at[i] - mean_slope - normalised * mean_projection);
    }
    store(dx, row, column, values);
  }
  SHARDMARK_BOTH void finish(const State&, std::int64_t) const {}
};

struct RowMaxKernel {
  static constexpr const char* name = "shardmark_row_max";
  using State = float;
  Extent extent;
  View logits, maximum;

  SHARDMARK_BOTH static State start() { return -INFINITY; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const Values<width> values = load<width>(logits, row, column);
    for (int i = 0; i < width; ++i) state = values.at[i] > state ? values.at[i] : state;
  }
  SHARDMARK_BOTH static State joined(State a, State b) { return a > b ? a : b; }
  template <int width>
  SHARDMARK_BOTH void apply(State, std::int64_t, std::int64_t) const {}
  SHARDMARK_BOTH void finish(State state, std::int64_t row) const {
    store_one(maximum, row, 0, state);
  }
};

struct CrossEntropySumKernel {
  static constexpr const char* name = "shardmark_cross_entropy_sum";
  using State = float;
  Extent extent;
  View logits;
  Ids targets;
  View maximum, sums, target_logits;
  std::int64_t first_column;

  SHARDMARK_BOTH static State start() { return 0; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const float highest = load_one(maximum, row, 0);
    const Values<width> values = load<width>(logits, row, column);
    for (int i = 0; i < width; ++i) state += expf(values.at[i] - highest);
  }
  SHARDMARK_BOTH static State joined(State a, State b) { return a + b; }
  template <int width>
  SHARDMARK_BOTH void apply(State, std::int64_t, std::int64_t) const {}
  SHARDMARK_BOTH void finish(State state, std::int64_t row) const {
    const std::int64_t target = targets.local(row, first_column, extent.cols);
    store_one(sums, row, 0, state);
    store_one(target_logits, row, 0, target < 0 ? 0 : load_one(logits, row, target));
  }
};

/// y_N = the sum of x_TN over its rows [+ y].
struct SumRowsKernel {
  static constexpr const char* name = "shardmark_sum_rows";
  using State = float;
  Extent extent;
  View x, y;
  bool accumulate;

  SHARDMARK_BOTH static State start() { return 0; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    state += load_one(x, row, column);
  }
  SHARDMARK_BOTH static State joined(State a, State b) { return a + b; }
  SHARDMARK_BOTH void finish(State state, std::int64_t column) const {
    store_one(y, 0, column, accumulate ? load_one(y, 0, column) + state : state);
  }
};

struct NormWeightsKernel {
  static constexpr const char* name = "shardmark_norm_bwd_weights";
  struct State {
    float gain, bias;
  };
  Extent extent;
  View x, stats, dy, dgain, dbias;
  bool has_bias, accumulate;

  SHARDMARK_BOTH static State start() { return {0, 0}; }
  template <int width>
  SHARDMARK_BOTH void take(State& state, std::int64_t row, std::int64_t column) const {
    const float mean = load_one(stats, row, 0), scale = load_one(stats, row, 1);
    const float gradient = load_one(dy, row, column);
    state.gain += gradient * ((load_one(x, row, column) - mean) * scale);
    state.bias += gradient;
  }
  SHARDMARK_BOTH static State joined(const State& a, const State& b) {
    return {a.gain + b.gain, a.bias + b.bias};
  }
  SHARDMARK_BOTH void finish(const State& state, std::int64_t column) const {
    put_sum(dgain, column, state.gain);
    if (has_bias) put_sum(dbias, column, state.bias);
  }

 private:
  SHARDMARK_BOTH void put_sum(const View& sum, std::int64_t column, float value) const {
    store_one(sum, 0, column, accumulate ? load_one(sum, 0, column) + value : value);
  }
};

}  // namespace shardmark::cuda
