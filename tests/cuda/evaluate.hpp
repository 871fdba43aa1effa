#pragma once

// Runs the calls of a translation on host memory: what cuBLASLt, cuDNN and the copy engine would do
// in the simplest way that their manuals describe, and our own kernels as the device runs them.

#include "core/cuda/translate/translate.hpp"
#include "core/reference/matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace shardmark::cuda::host {

using reference::Matrix;

/// A tensor over a column-major matrix: its rows are the matrix's columns.
inline Tensor columns_of(const ColumnMajor& m) {
  return {1, m.dtype, {m.cols, m.rows}, 0, m.leading_dimension, m.data};
}

/// One of a batch.
inline void run_one(const MatmulCall& call) {
  EXPECT_GE(call.d.leading_dimension, call.d.rows);
  const Matrix a =
      call.transpose_a ? Matrix{columns_of(call.a)} : Matrix{columns_of(call.a)}.transposed();
  const Matrix b =
      call.transpose_b ? Matrix{columns_of(call.b)} : Matrix{columns_of(call.b)}.transposed();
  EXPECT_EQ(a.rows(), call.d.rows);
  EXPECT_EQ(b.cols(), call.d.cols);
  ASSERT_EQ(a.cols(), b.rows());
  Matrix d = Matrix{columns_of(call.d)}.transposed();
  for (std::int64_t c = 0; c < d.cols(); ++c)
    for (std::int64_t r = 0; r < d.rows(); ++r) {
      double sum = call.beta == 0 ? 0 : static_cast<double>(call.beta) * d(r, c);
      for (std::int64_t k = 0; k < a.cols(); ++k) sum += a(r, k) * b(k, c);
      d(r, c) = sum;
    }
  if (call.bias != nullptr) {
    const Matrix bias{Tensor{1, call.d.dtype, {call.d.rows}, 0, call.d.rows, call.bias}};
    for (std::int64_t c = 0; c < d.cols(); ++c)
      for (std::int64_t r = 0; r < d.rows(); ++r) d(r, c) += bias[r];
  }
  d.transposed().store(columns_of(call.d));
}
inline void run(const MatmulCall& call) {
  for (std::int64_t m = 0; m < call.num_batches; ++m) {
    MatmulCall one = call;
    for (ColumnMajor* matrix : {&one.a, &one.b, &one.d})
      matrix->data += m * matrix->batch_stride * size_of(matrix->dtype);
    run_one(one);
  }
}

inline void run(const MemoryCopy& call) {
  for (std::int64_t r = 0; r < call.num_rows; ++r)
    std::memmove(call.to + r * call.to_pitch_bytes, call.from + r * call.from_pitch_bytes,
                 static_cast<std::size_t>(call.row_bytes));
}
inline void run(const MemoryClear& call) {
  for (std::int64_t r = 0; r < call.num_rows; ++r)
    std::memset(call.to + r * call.pitch_bytes, 0, static_cast<std::size_t>(call.row_bytes));
}

/// One head of one batch entry of a graph's tensor, as a matrix.
inline Tensor head_of(const GraphTensor& t, std::int64_t batch, std::int64_t head) {
  EXPECT_EQ(t.strides[3], 1);
  const std::int64_t offset = batch * t.strides[0] + head * t.strides[1];
  return {1, t.dtype, {t.dims[2], t.dims[3]}, 0, t.strides[2], t.data + offset * size_of(t.dtype)};
}

inline bool sees(const FusedAttention& graph, std::int64_t query, std::int64_t key) {
  if (graph.right_bound && key > query + *graph.right_bound) return false;
  return !graph.left_bound || key > query - *graph.left_bound;
}

/// scores(i, j) of one head; -inf where masked.
inline Matrix scores_of(const FusedAttention& graph, const Matrix& q, const Matrix& k) {
  Matrix scores{q.rows(), k.rows()};
  for (std::int64_t i = 0; i < q.rows(); ++i)
    for (std::int64_t j = 0; j < k.rows(); ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < q.cols(); ++c) sum += q(i, c) * k(j, c);
      scores(i, j) = sees(graph, i, j) ? sum * static_cast<double>(graph.scale)
                                       : -std::numeric_limits<double>::infinity();
    }
  return scores;
}

inline void run_forward(const FusedAttention& graph, std::int64_t batch, std::int64_t head) {
  const std::int64_t kv_head = head / (graph.q.dims[1] / graph.k.dims[1]);
  const Matrix q{head_of(graph.q, batch, head)}, k{head_of(graph.k, batch, kv_head)},
      v{head_of(graph.v, batch, kv_head)};
  const Matrix scores = scores_of(graph, q, k);
  Matrix o{q.rows(), v.cols()}, stats{q.rows(), 1};
  for (std::int64_t i = 0; i < q.rows(); ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < k.rows(); ++j) sum += std::exp(scores(i, j));
    EXPECT_GT(sum, 0) << "query row " << i << " sees nothing, which cuDNN leaves undefined";
    for (std::int64_t j = 0; j < k.rows(); ++j)
      for (std::int64_t c = 0; c < v.cols(); ++c) o(i, c) += std::exp(scores(i, j)) / sum * v(j, c);
    stats[i] = std::log(sum);
  }
  o.store(head_of(graph.o, batch, head));
  stats.store(head_of(graph.stats, batch, head));
}

/// Of all heads that share one of k and v.
inline void run_backward(const FusedAttention& graph, std::int64_t batch, std::int64_t kv_head) {
  const std::int64_t sharing = graph.q.dims[1] / graph.k.dims[1];
  const auto scale = static_cast<double>(graph.scale);
  const Matrix k{head_of(graph.k, batch, kv_head)}, v{head_of(graph.v, batch, kv_head)};
  Matrix dk{k.rows(), k.cols()}, dv{k.rows(), k.cols()};
  for (std::int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
    const Matrix q{head_of(graph.q, batch, head)}, o{head_of(graph.o, batch, head)},
        d_o{head_of(graph.d_o, batch, head)}, stats{head_of(graph.stats, batch, head)};
    const Matrix scores = scores_of(graph, q, k);
    Matrix dq{q.rows(), q.cols()};
    for (std::int64_t i = 0; i < q.rows(); ++i) {
      double mean = 0;
      for (std::int64_t c = 0; c < o.cols(); ++c) mean += o(i, c) * d_o(i, c);
      for (std::int64_t j = 0; j < k.rows(); ++j) {
        const double p = std::exp(scores(i, j) - stats[i]);
        double dp = 0;
        for (std::int64_t c = 0; c < v.cols(); ++c) dp += d_o(i, c) * v(j, c);
        const double slope = p * (dp - mean) * scale;
        for (std::int64_t c = 0; c < q.cols(); ++c) {
          dq(i, c) += slope * k(j, c);
          dk(j, c) += slope * q(i, c);
          dv(j, c) += p * d_o(i, c);
        }
      }
    }
    dq.store(head_of(graph.dq, batch, head));
  }
  dk.store(head_of(graph.dk, batch, kv_head));
  dv.store(head_of(graph.dv, batch, kv_head));
}

inline void run(const FusedAttention& graph) {
  for (std::int64_t batch = 0; batch < graph.q.dims[0]; ++batch) {
    const std::int64_t heads = graph.backward ? graph.k.dims[1] : graph.q.dims[1];
    for (std::int64_t head = 0; head < heads; ++head)
      graph.backward ? run_backward(graph, batch, head) : run_forward(graph, batch, head);
  }
}

template <int width, AlternativeOf<ElementKernel> F>
void run_kernel(const F& kernel, const Launch& launch) {
  for (std::uint32_t index = 0; index < launch.grid * launch.block_x; ++index)
    run_packet<width>(kernel, index);
}

/// As the threads of a block join their states: within warps by exchange, then warp after warp.
template <class F>
typename F::State joined_states(std::vector<typename F::State> states) {
  for (std::size_t distance = warp / 2; distance > 0; distance /= 2) {
    std::vector<typename F::State> next = states;
    for (std::size_t t = 0; t < states.size(); ++t)
      next[t] = F::joined(states[t], states[t ^ distance]);
    states = next;
  }
  typename F::State all = states[0];
  for (std::size_t t = warp; t < states.size(); t += warp) all = F::joined(all, states[t]);
  return all;
}
template <int width, AlternativeOf<RowKernel> F>
void run_kernel(const F& kernel, const Launch& launch) {
  for (std::int64_t row = 0; row < std::int64_t{launch.grid} * launch.block_y; ++row) {
    if (row >= kernel.extent.rows) continue;
    std::vector<typename F::State> states;
    for (std::uint32_t t = 0; t < launch.block_x; ++t)
      states.push_back(take_row_share<width>(kernel, row, t, launch.block_x));
    const typename F::State state = joined_states<F>(states);
    for (std::uint32_t t = 0; t < launch.block_x; ++t)
      apply_row_share<width>(kernel, state, row, t, launch.block_x);
    kernel.finish(state, row);
  }
}

template <int width, AlternativeOf<ColumnKernel> F>
void run_kernel(const F& kernel, const Launch& launch) {
  for (std::int64_t column = 0; column < std::int64_t{launch.grid} * launch.block_x; ++column) {
    if (column >= kernel.extent.cols) continue;
    typename F::State state = F::start();
    for (std::uint32_t t = 0; t < launch.block_y; ++t)
      state = F::joined(state, take_column_share(kernel, column, t, launch.block_y));
    kernel.finish(state, column);
  }
}

inline void run(const KernelCall& call) {
  std::visit(
      [&](const auto& kernel) {
        if (call.launch.width == wide)
          run_kernel<wide>(kernel, call.launch);
        else
          run_kernel<1>(kernel, call.launch);
      },
      call.kernel);
}

/// Calls of one rank; communication is run by the test that has all ranks.
inline void run(const NcclGroup&) { ADD_FAILURE() << "a collective where there is one rank"; }
inline void run(const EventRecord&) {}
inline void run(const EventWait&) {}

inline void run(const Translation& translation) {
  for (const Call& call : translation.calls) std::visit([](const auto& c) { run(c); }, call);
}

}  // namespace shardmark::cuda::host
