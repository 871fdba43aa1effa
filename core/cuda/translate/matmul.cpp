// Row-major matrices for a library that knows column-major ones: the same memory read the other way
// is the transpose, and c^T = op(b)^T op(a)^T. So b comes first, and what is transposed for us is
// transposed for cuBLASLt.

#include "core/cuda/translate/parts.hpp"

#include <algorithm>
#include <cstdint>

namespace shardmark::cuda {
namespace {

ColumnMajor transpose_of(const Tensor& t, std::int64_t batch_stride) {
  return {t.data, t.dtype, t.cols(), t.rows(), std::max(t.row_stride, t.cols()), batch_stride};
}

/// The largest power of two, at most 16, that divides all values.
int common_alignment(std::initializer_list<std::uint64_t> values) {
  std::uint64_t bits = 16;
  for (const std::uint64_t value : values) bits |= value;
  return static_cast<int>(bits & -bits);
}
std::uint64_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
std::uint64_t step_bytes(const ColumnMajor& m) {
  return static_cast<std::uint64_t>((m.leading_dimension | m.batch_stride) * size_of(m.dtype));
}

}  // namespace

MatmulCall matmul_call(const Matmul& op, const Resources& resources, const MatmulBatch& batch) {
  MatmulCall call{.a = transpose_of(op.b, batch.b),
                  .b = transpose_of(op.a, batch.a),
                  .d = transpose_of(op.c, batch.c),
                  .num_batches = batch.count,
                  .transpose_a = op.transpose_b,
                  .transpose_b = op.transpose_a,
                  .fast_tf32 = resources.allow_tf32 && op.a.dtype == DType::f32,
                  .beta = op.accumulate ? 1.0F : 0.0F};
  call.alignment_bytes =
      common_alignment({address(call.a.data), address(call.b.data), address(call.d.data),
                        step_bytes(call.a), step_bytes(call.b), step_bytes(call.d)});
  return call;
}

void append_calls(const Matmul& op, const Resources& resources, Translation& to) {
  if (op.c.numel() == 0) return;
  // The epilogue takes a bias of the result's dtype only, and wants it aligned.
  const bool fuses = op.bias && op.bias.dtype == op.c.dtype && op.bias.contiguous() &&
                     address(op.bias.data) % 16 == 0;
  const bool sums_nothing = op.a.numel() == 0;
  if (sums_nothing) {
    if (!op.accumulate) append_calls(Fill{op.c, 0}, resources, to);
  } else {
    MatmulCall call = matmul_call(op, resources);
    if (fuses) call.bias = op.bias.data;
    to.calls.emplace_back(call);
  }
  if (op.bias && (sums_nothing || !fuses))
    append_calls(AddBias{op.c, op.bias, op.c}, resources, to);
}

}  // namespace shardmark::cuda
