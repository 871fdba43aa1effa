#pragma once

// Kernels whose threads each make some neighbouring elements of a row, on their own. Each reads all
// it needs of an element before it writes, so results may replace operands.

#include "core/cuda/kernels/view.hpp"
#include "core/ops.hpp"

#include <cmath>
#include <cstdint>

namespace shardmark::cuda {

struct AddKernel {
  static constexpr const char* name = "shardmark_add";
  Extent extent;
  View a, b, y;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    store(y, row, column, load<width>(a, row, column) + load<width>(b, row, column));
  }
};

struct AddBiasKernel {
  static constexpr const char* name = "shardmark_add_bias";
  Extent extent;
  View x, bias, y;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    store(y, row, column, load<width>(x, row, column) + load<width>(bias, 0, column));
  }
};

/// y += part, whose rows are some of y's.
struct AddRowsKernel {
  static constexpr const char* name = "shardmark_add_rows";
  Extent extent;
  View part, y;
  RowMap rows;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t whole = rows.whole(row);
    store(y, whole, column, load<width>(y, whole, column) + load<width>(part, row, column));
  }
};

/// Between f32, bf16 and f16.
struct CastKernel {
  static constexpr const char* name = "shardmark_cast";
  Extent extent;
  View x, y;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    store(y, row, column, load<width>(x, row, column));
  }
};

/// Elements of 1, 2, 4 or 8 bytes become the lowest bytes of `bits`.
struct FillKernel {
  static constexpr const char* name = "shardmark_fill";
  Extent extent;
  std::byte* data;
  std::int64_t row_stride;
  int element_bytes;
  std::uint64_t bits;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t index = row * row_stride + column;
    if (element_bytes == 1) repeat<width>(index, static_cast<std::uint8_t>(bits));
    if (element_bytes == 2) repeat<width>(index, static_cast<std::uint16_t>(bits));
    if (element_bytes == 4) repeat<width>(index, static_cast<std::uint32_t>(bits));
    if (element_bytes == 8) repeat<width>(index, bits);
  }

 private:
  template <int width, class T>
  SHARDMARK_BOTH void repeat(std::int64_t index, T element) const {
    Packet<T, width> packet;
    for (int i = 0; i < width; ++i) packet.at[i] = element;
    put(data + index * static_cast<std::int64_t>(sizeof(T)), packet);
  }
};

/// sqrt(2 / pi), 1 / sqrt(2) and 1 / sqrt(2 pi).
inline constexpr float sqrt_2_over_pi = 0.79788456080286536F, sqrt_half = 0.70710678118654752F,
                       density_at_0 = 0.39894228040143268F;
/// The factor of the cube in GPT-2's approximation of GeLU.
inline constexpr float gelu_cube = 0.044715F;

SHARDMARK_BOTH inline float gelu_value(float x, GeluKind kind) {
  const float half = 0.5F * x;
  if (kind == GeluKind::erf) return half * (1 + erff(x * sqrt_half));
  return half * (1 + tanhf(sqrt_2_over_pi * (x + gelu_cube * x * x * x)));
}
SHARDMARK_BOTH inline float gelu_slope(float x, GeluKind kind) {
  if (kind == GeluKind::erf)
    return 0.5F * (1 + erff(x * sqrt_half)) + x * density_at_0 * expf(-0.5F * x * x);
  const float t = tanhf(sqrt_2_over_pi * (x + gelu_cube * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * gelu_cube * x * x);
}
SHARDMARK_BOTH inline float sigmoid(float z) { return 1 / (1 + expf(-z)); }

struct GeluKernel {
  static constexpr const char* name = "shardmark_gelu";
  Extent extent;
  View x, y;
  GeluKind kind;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    Values<width> values = load<width>(x, row, column);
    for (int i = 0; i < width; ++i) values.at[i] = gelu_value(values.at[i], kind);
    store(y, row, column, values);
  }
};

struct GeluBackwardKernel {
  static constexpr const char* name = "shardmark_gelu_bwd";
  Extent extent;
  View x, dy, dx;
  GeluKind kind;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const Values<width> inputs = load<width>(x, row, column);
    Values<width> gradients = load<width>(dy, row, column);
    for (int i = 0; i < width; ++i) gradients.at[i] *= gelu_slope(inputs.at[i], kind);
    store(dx, row, column, gradients);
  }
};

struct SwiGluKernel {
  static constexpr const char* name = "shardmark_swiglu";
  Extent extent;
  View gate, up, y;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const Values<width> gates = load<width>(gate, row, column);
    Values<width> values = load<width>(up, row, column);
    for (int i = 0; i < width; ++i) values.at[i] *= gates.at[i] * sigmoid(gates.at[i]);
    store(y, row, column, values);
  }
};

struct SwiGluBackwardKernel {
  static constexpr const char* name = "shardmark_swiglu_bwd";
  Extent extent;
  View gate, up, dy, dgate, dup;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    Values<width> gates = load<width>(gate, row, column);
    Values<width> ups = load<width>(up, row, column);
    const Values<width> gradients = load<width>(dy, row, column);
    for (int i = 0; i < width; ++i) {
      const float z = gates.at[i], s = sigmoid(z);
      gates.at[i] = gradients.at[i] * ups.at[i] * (s + z * s * (1 - s));
      ups.at[i] = gradients.at[i] * z * s;
    }
    store(dgate, row, column, gates);
    store(dup, row, column, ups);
  }
};

/// `extent` has half of x's columns: a thread turns pairs. The table has a row for each place of a
/// sequence: head_dim/2 cosines, then as many sines. (sinf and cosf of large angles would need a
/// stack, and lose digits.)
struct RopeKernel {
  static constexpr const char* name = "shardmark_rope";
  Extent extent;
  View x;
  const float* table;
  std::int64_t seq, head_dim;
  float direction;  ///< 1, or -1 to turn back
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t half = head_dim / 2, i = column % half;
    const std::int64_t lower = column / half * head_dim + i;
    const float* const angles = table + row % seq * head_dim + i;
    Values<width> a = load<width>(x, row, lower), b = load<width>(x, row, lower + half);
    for (int e = 0; e < width; ++e) {
      const float cosine = angles[e], sine = angles[half + e] * direction;
      const float turned = a.at[e] * cosine - b.at[e] * sine;
      b.at[e] = b.at[e] * cosine + a.at[e] * sine;
      a.at[e] = turned;
    }
    store(x, row, lower, a);
    store(x, row, lower + half, b);
  }
};

struct EmbeddingKernel {
  static constexpr const char* name = "shardmark_embedding";
  Extent extent;
  Ids ids;
  View table, y;
  std::int64_t first_row, num_rows;
  bool accumulate;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t entry = ids.local(row, first_row, num_rows);
    if (entry < 0 && accumulate) return;
    Values<width> values{};
    if (entry >= 0) values = load<width>(table, entry, column);
    if (accumulate) values = load<width>(y, row, column) + values;
    store(y, row, column, values);
  }
};

/// Row r of `extent` adds the gradients of all tokens whose row of the table is r modulo the
/// number of rows of `extent`: no two threads write the same element, and sums have one order.
struct EmbeddingBackwardKernel {
  static constexpr const char* name = "shardmark_embedding_bwd";
  Extent extent;
  Ids ids;
  View dy, dtable;
  std::int64_t num_tokens, first_row, num_rows;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const std::int64_t entry = ids.local(t, first_row, num_rows);
      if (entry < 0 || entry % extent.rows != row) continue;
      store(dtable, entry, column, load<width>(dtable, entry, column) + load<width>(dy, t, column));
    }
  }
};

/// One column: a token's loss. Vectors of one value per token are seen as columns.
struct CrossEntropyLossKernel {
  static constexpr const char* name = "shardmark_cross_entropy_loss";
  Extent extent;
  View maximum, sums, target_logits, loss;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t) const {
    store_one(
        loss, row, 0,
        logf(load_one(sums, row, 0)) + load_one(maximum, row, 0) - load_one(target_logits, row, 0));
  }
};

struct CrossEntropyBackwardKernel {
  static constexpr const char* name = "shardmark_cross_entropy_bwd";
  Extent extent;
  View logits;
  Ids targets;
  View maximum, sums, dlogits;
  std::int64_t first_column;
  float scale;
  template <int width>
  SHARDMARK_BOTH void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t target = targets.local(row, first_column, extent.cols);
    const float highest = load_one(maximum, row, 0), factor = scale / load_one(sums, row, 0);
    Values<width> values = load<width>(logits, row, column);
    for (int i = 0; i < width; ++i) {
      values.at[i] = expf(values.at[i] - highest) * factor;
      if (column + i == target) values.at[i] -= scale;
    }
    store(dlogits, row, column, values);
  }
};

}  // namespace shardmark::cuda
