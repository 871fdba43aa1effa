#pragma once

// Attention to some keys joined with attention to others: each has its output and the log of the
// sum of its exponentials (lse), from which the weights of both follow. Outputs first, then sums:
// the former need the sums as they were.

#include "core/cuda/kernels/view.hpp"

#include <cmath>
#include <cstdint>

namespace shardmark::cuda {

SHARDMARK_BOTH inline float larger(float a, float b) { return a > b ? a : b; }

/// log(exp(a) + exp(b)); -inf of nothing and nothing.
SHARDMARK_BOTH inline float log_sum(float a, float b) {
  const float high = larger(a, b), low = a > b ? b : a;
  return high == -INFINITY ? high : high + log1pf(expf(low - high));
}

/// The sums of heads of a batch, f32 and contiguous: [batch][head][row].
struct Sums {
  float* data;
  std::int64_t heads, rows;
  [[nodiscard]] SHARDMARK_BOTH float& of(std::int64_t batch, std::int64_t head,
                                         std::int64_t row) const {
    return data[(batch * heads + head) * rows + row];
  }
};

/// Both kernels know the part's row `row` of all sequences as row `row % part_rows` of sequence
/// `row / part_rows`.
struct MergeOutputKernel {
  static constexpr const char* name = "shardmark_merge_output";
  Extent extent;  ///< of the part
  View o, part;
  Sums sums, part_sums;
  RowMap rows;
  std::int64_t head_dim;  ///< a multiple of the width
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t head = column / head_dim, batch = row / rows.part_rows;
    const std::int64_t at = row % rows.part_rows, whole = rows.whole(row);
    const float old = sums.of(batch, head, rows.first + at), added = part_sums.of(batch, head, at);
    const float both = log_sum(old, added);
    const float keep = both == -INFINITY ? 0 : expf(old - both);
    const float take = both == -INFINITY ? 0 : expf(added - both);
    Values<width> values = load<width>(o, whole, column);
    const Values<width> others = load<width>(part, row, column);
    for (int i = 0; i < width; ++i) values.at[i] = keep * values.at[i] + take * others.at[i];
    store(o, whole, column, values);
  }
};

struct MergeSumsKernel {
  static constexpr const char* name = "shardmark_merge_sums";
  Extent extent;  ///< rows of the part, a column for each head
  Sums sums, part_sums;
  RowMap rows;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t batch = row / rows.part_rows, at = row % rows.part_rows;
    for (std::int64_t head = column; head < column + width; ++head) {
      float& sum = sums.of(batch, head, rows.first + at);
      sum = log_sum(sum, part_sums.of(batch, head, at));
    }
  }
};

}  // namespace shardmark::cuda
