#pragma once

// Every compute op on edges of shape: one row, one column, odd sizes, rows with a gap, tensors that
// are not aligned, every dtype.

#include "core/error.hpp"
#include "core/ops.hpp"
#include "tests/cuda/pool.hpp"

#include <functional>
#include <string>
#include <vector>

namespace shardmark::cuda {

/// How tensors lie: rows `gap` elements apart (8 keep them aligned), the first `shift` elements off
/// an aligned address.
struct Layout {
  DType dtype{DType::f32};
  std::int64_t rows{1}, cols{1}, gap{0}, shift{0};
  [[nodiscard]] std::string to_string() const {
    return message(rows, "x", cols, " ", name_of(dtype), ", gap ", gap, ", shift ", shift);
  }
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = [] {
    struct Size {
      std::int64_t rows, cols;
    };
    std::vector<Layout> list;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Size size : {Size{1, 1}, Size{1, 40}, Size{9, 1}, Size{7, 37}, Size{5, 64},
                              Size{3, 1100}, Size{33, 24}})
        for (const std::int64_t gap : {0, 3, 8})
          for (const std::int64_t shift : {0, 1})
            list.push_back({dtype, size.rows, size.cols, gap, shift});
    return list;
  }();
  return all;
}

/// Makes the ops of one kind on tensors of the pool.
using MakeOps = std::function<std::vector<Op>(Pool&, const Layout&)>;

/// Long rows matter where threads share them.
inline bool is_long(const Layout& l) { return l.cols > 1000; }

inline std::vector<Op> dense_ops(Pool& pool, const Layout& l) {
  if (is_long(l)) return {};
  const auto x = [&] { return pool.random({l.rows, l.cols}, l.dtype, l.gap, l.shift); };
  const auto wide_x = [&] { return pool.random({l.rows, l.cols}, DType::f32, l.gap, l.shift); };
  const auto vector = [&](DType dtype) { return pool.random({l.cols}, dtype); };
  std::vector<Op> ops{Add{x(), x(), x()},
                      Add{x(), wide_x(), wide_x()},
                      AddBias{x(), vector(l.dtype), x()},
                      Copy{x(), x()},
                      Copy{x(), wide_x()},
                      Copy{wide_x(), x()},
                      Fill{x(), 0},
                      Fill{x(), 1.5F},
                      Gelu{x(), x()},
                      Gelu{x(), x(), GeluKind::tanh},
                      GeluBackward{x(), x(), x()},
                      GeluBackward{x(), x(), x(), GeluKind::tanh},
                      SwiGlu{x(), x(), x()},
                      SwiGluBackward{x(), x(), x(), x(), x()}};
  for (const bool accumulate : {false, true})
    ops.emplace_back(SumRows{x(), vector(DType::f32), accumulate});
  const Tensor in_place = x();
  ops.emplace_back(Add{in_place, x(), in_place});
  return ops;
}

inline std::vector<Op> norm_ops(Pool& pool, const Layout& l) {
  const auto x = [&] { return pool.random({l.rows, l.cols}, l.dtype, l.gap, l.shift); };
  const auto vector = [&](DType dtype) { return pool.random({l.cols}, dtype); };
  std::vector<Op> ops;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const bool layer = kind == NormKind::layer;
    const Tensor bias = layer ? vector(l.dtype) : Tensor{};
    ops.emplace_back(Norm{x(), vector(l.dtype), bias, x(),
                          pool.empty({l.rows, 2}, DType::f32, l.gap), kind, 1e-3F});
    for (const bool accumulate : {false, true})
      ops.emplace_back(NormBackward{
          x(), vector(l.dtype), pool.random({l.rows, 2}, DType::f32, l.gap), x(), x(),
          vector(DType::f32), layer ? vector(DType::f32) : Tensor{}, kind, accumulate});
  }
  return ops;
}

inline std::vector<Op> vocabulary_ops(Pool& pool, const Layout& l) {
  constexpr std::int64_t entries = 11;
  const auto x = [&] { return pool.random({l.rows, l.cols}, l.dtype, l.gap, l.shift); };
  const auto per_row = [&] { return pool.random({l.rows}, DType::f32); };
  const auto table = [&](DType dtype) { return pool.random({entries, l.cols}, dtype, l.gap); };
  const auto ids = [&] { return pool.ids(l.rows, 0, 19); };
  std::vector<Op> ops;
  for (const bool accumulate : {false, true}) {
    ops.emplace_back(Embedding{ids(), table(l.dtype), x(), 4, accumulate});
    ops.emplace_back(EmbeddingBackward{ids(), x(), table(DType::f32), 4, accumulate});
  }
  ops.emplace_back(RowMax{x(), pool.empty({l.rows, 1}, DType::f32, l.gap)});
  const auto targets = [&] { return pool.ids(l.rows, 0, static_cast<int>(l.cols) + 3); };
  ops.emplace_back(
      CrossEntropySum{x(), targets(), per_row(), pool.empty({2, l.rows}, DType::f32), 1});
  const Tensor sums = pool.random({2, l.rows}, DType::f32);
  for (std::int64_t t = 0; t < l.rows; ++t) sums.as<float>()[t] += 5;
  ops.emplace_back(CrossEntropyLoss{per_row(), sums, pool.empty({l.rows}, DType::f32)});
  ops.emplace_back(CrossEntropyBackward{x(), targets(), per_row(), sums, x(), 1, 0.25F});
  return ops;
}

/// Rows are two sequences; head_dim is 2, or 16 where columns allow it.
inline std::vector<Op> rope_ops(Pool& pool, const Layout& l) {
  const std::int64_t head_dim = l.cols % 16 == 0 ? 16 : 2, heads = l.cols / head_dim;
  if (heads == 0) return {};
  static constexpr std::int64_t starts[] = {0, 3};
  const auto x = [&] {
    return pool.random({2 * l.rows, heads * head_dim}, l.dtype, l.gap, l.shift);
  };
  Rope places{x(), l.rows, heads, head_dim};
  places.places = {{Places::Run{5, l.rows, 3}, Places::Run{}}};
  Rope packed{x(), l.rows, heads, head_dim, 500};
  packed.starts = starts;
  return {Rope{x(), l.rows, heads, head_dim}, Rope{x(), l.rows, heads, head_dim, 10000, true},
          places, packed};
}

/// x and y of every dtype, whatever `l` says; rows of a gap of 3 take the same way as those off an
/// address.
inline std::vector<Op> reduction_ops(Pool& pool, const Layout& l) {
  if (l.dtype != DType::f32 || l.gap == 3 || is_long(l)) return {};
  std::vector<Op> ops;
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::i32, DType::f64, DType::f16, DType::i8}) {
    const auto x = [&] { return pool.integers({l.rows, l.cols}, dtype, 9, l.gap, l.shift); };
    for (const Reduction reduction :
         {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::avg})
      ops.emplace_back(Combine{x(), x(), reduction});
    ops.emplace_back(Divide{x(), 3});
    ops.emplace_back(Copy{x(), x()});
    ops.emplace_back(Fill{x(), -3.0F});
  }
  return ops;
}

/// Of whole numbers: exact in any order of summation. Rows of a and b are as many as `l` says;
/// 1-row operands and a K of 1 and of 0 among them.
inline std::vector<Op> matmul_ops(Pool& pool, const Layout& l) {
  if (is_long(l)) return {};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, DType dtype) {
    return pool.integers({rows, cols}, dtype, 3, l.gap, l.shift);
  };
  std::vector<Op> ops;
  for (const int flags : {0, 1, 2, 3, 4, 7})
    for (const DType c_dtype : {l.dtype, DType::f32})
      for (const std::int64_t k : {0, 1, 6}) {
        const bool transpose_a = (flags & 1) != 0, transpose_b = (flags & 2) != 0;
        const bool accumulate = (flags & 4) != 0;
        const Tensor a = transpose_a ? matrix(k, l.rows, l.dtype) : matrix(l.rows, k, l.dtype);
        const Tensor b = transpose_b ? matrix(l.cols, k, l.dtype) : matrix(k, l.cols, l.dtype);
        const Tensor bias = k == 1 ? Tensor{} : pool.integers({l.cols}, l.dtype, 3, 0, l.shift);
        ops.emplace_back(Matmul{a, b, matrix(l.rows, l.cols, c_dtype), bias, transpose_a,
                                transpose_b, accumulate});
      }
  return ops;
}

inline std::vector<MakeOps> all_examples() {
  return {matmul_ops, dense_ops, norm_ops, vocabulary_ops, rope_ops, reduction_ops};
}

}  // namespace shardmark::cuda
