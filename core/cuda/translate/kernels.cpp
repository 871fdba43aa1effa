// Ops that our own kernels or the copy engine do.

#include "core/bf16.hpp"
#include "core/cuda/translate/parts.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace shardmark::cuda {
namespace {

bool starts_aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
}
bool rows_aligned(const Tensor& tensor) {
  return tensor.rows() <= 1 || tensor.row_stride * size_of(tensor.dtype) % 16 == 0;
}

Ids ids_of(const Tensor& ids) {
  SHARDMARK_CHECK(ids.dtype == DType::i32, "ids of dtype ", name_of(ids.dtype), "; i32 is needed");
  const View column = [&] {
    Tensor as_floats = ids;  // of the same size
    as_floats.dtype = DType::f32;
    return column_vector(as_floats);
  }();
  return {ids.as<std::int32_t>(), column.row_stride};
}

Elements elements_of(const Tensor& tensor) {
  return {tensor.data, tensor.row_stride, tensor.dtype};
}

/// An elementwise kernel on tensors of one shape.
template <class MakeKernel>
void elementwise(Translation& to, std::initializer_list<Tensor> tensors,
                 const MakeKernel& make_kernel) {
  const Extent extent = extent_of(tensors);
  const bool one_row = extent.rows == 1;
  append(to, make_kernel(extent), width_of(extent.cols, tensors, one_row));
}

/// As many rows as y, each of which the kernel knows.
Extent rows_of(const Tensor& y) { return {y.rows(), y.cols()}; }

std::uint64_t bits_of(float value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(value);
    case DType::bf16:
      return to_bf16(value);
    case DType::i32:
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    case DType::f16:
      return to_f16(value);
    case DType::i8:
      return static_cast<std::uint8_t>(static_cast<std::int8_t>(value));
  }
  return 0;
}

/// Both rows of partials_2T as columns.
struct Partials {
  View sums, target_logits;
};
Partials partials_of(const Tensor& partials) {
  const std::int64_t tokens = partials.numel() / 2;
  Tensor rows = partials.contiguous() ? partials.reshape({2, tokens}) : partials;
  SHARDMARK_CHECK(rows.rows() == 2 && rows.cols() == tokens, "partials of shape ",
                  partials.shape.to_string(), " with a stride; 2x", tokens, " is needed");
  return {column_vector(rows.row_block(0, 1)), column_vector(rows.row_block(1, 1))};
}

}  // namespace

View view_of(const Tensor& tensor) {
  const bool is_known =
      tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
  SHARDMARK_CHECK(is_known, "a kernel for ", name_of(tensor.dtype),
                  "; there are kernels for f32, bf16 and f16");
  return {tensor.data, tensor.row_stride, tensor.dtype};
}

View row_vector(const Tensor& vector) {
  SHARDMARK_CHECK(vector.contiguous(), "a vector of shape ", vector.shape.to_string(),
                  " with a stride of ", vector.row_stride);
  return view_of(vector);
}

View column_vector(const Tensor& vector) {
  View view = view_of(vector);
  const bool is_column = vector.cols() == 1 && !vector.contiguous();
  SHARDMARK_CHECK(is_column || vector.contiguous(), "one value per row in a shape of ",
                  vector.shape.to_string(), " with a stride of ", vector.row_stride);
  view.row_stride = is_column ? vector.row_stride : 1;
  return view;
}

Extent extent_of(std::initializer_list<Tensor> tensors) {
  const Tensor& first = *tensors.begin();
  const bool all_contiguous =
      std::ranges::all_of(tensors, [](const Tensor& tensor) { return tensor.contiguous(); });
  return all_contiguous ? Extent{1, first.numel()} : rows_of(first);
}

int width_of(std::int64_t cols, std::initializer_list<Tensor> tensors, bool one_row) {
  const bool all_aligned = std::ranges::all_of(tensors, [&](const Tensor& tensor) {
    return starts_aligned(tensor) && (one_row || rows_aligned(tensor));
  });
  return all_aligned && cols >= wide ? wide : 1;
}

void append_calls(const Add& op, const Resources&, Translation& to) {
  elementwise(to, {op.y, op.a, op.b}, [&](const Extent& extent) {
    return AddKernel{extent, view_of(op.a), view_of(op.b), view_of(op.y)};
  });
}

void append_calls(const AddBias& op, const Resources&, Translation& to) {
  append(to, AddBiasKernel{rows_of(op.y), view_of(op.x), row_vector(op.bias), view_of(op.y)},
         width_of(op.y.cols(), {op.y, op.x, op.bias}));
}

void append_calls(const SumRows& op, const Resources&, Translation& to) {
  append(to, SumRowsKernel{rows_of(op.x), view_of(op.x), row_vector(op.y), op.accumulate}, 1);
}

void append_calls(const Copy& op, const Resources&, Translation& to) {
  if (op.x.dtype != op.y.dtype)
    return elementwise(to, {op.y, op.x}, [&](const Extent& extent) {
      return CastKernel{extent, view_of(op.x), view_of(op.y)};
    });
  if (op.x.numel() == 0 || op.x.data == op.y.data) return;
  const std::int64_t size = size_of(op.x.dtype);
  if (op.x.contiguous() && op.y.contiguous())
    to.calls.emplace_back(
        MemoryCopy{op.x.data, op.y.data, op.x.bytes(), 1, op.x.bytes(), op.x.bytes()});
  else
    to.calls.emplace_back(MemoryCopy{op.x.data, op.y.data, op.x.cols() * size, op.x.rows(),
                                     op.x.row_stride * size, op.y.row_stride * size});
}

void append_calls(const Fill& op, const Resources&, Translation& to) {
  const std::uint64_t bits = bits_of(op.value, op.x.dtype);
  const std::int64_t size = size_of(op.x.dtype);
  if (bits != 0)
    return elementwise(to, {op.x}, [&](const Extent& extent) {
      return FillKernel{extent, op.x.data, op.x.row_stride, static_cast<int>(size), bits};
    });
  if (op.x.numel() == 0) return;
  if (op.x.contiguous())
    to.calls.emplace_back(MemoryClear{op.x.data, op.x.bytes(), 1, op.x.bytes()});
  else
    to.calls.emplace_back(
        MemoryClear{op.x.data, op.x.cols() * size, op.x.rows(), op.x.row_stride * size});
}

void append_calls(const Combine& op, const Resources&, Translation& to) {
  elementwise(to, {op.y, op.x}, [&](const Extent& extent) {
    return CombineKernel{extent, elements_of(op.x), elements_of(op.y), op.reduction};
  });
}

void append_calls(const Divide& op, const Resources&, Translation& to) {
  elementwise(to, {op.x}, [&](const Extent& extent) {
    return DivideKernel{extent, elements_of(op.x), op.divisor};
  });
}

void append_calls(const Gelu& op, const Resources&, Translation& to) {
  elementwise(to, {op.y, op.x}, [&](const Extent& extent) {
    return GeluKernel{extent, view_of(op.x), view_of(op.y), op.kind};
  });
}

void append_calls(const GeluBackward& op, const Resources&, Translation& to) {
  elementwise(to, {op.dx, op.x, op.dy}, [&](const Extent& extent) {
    return GeluBackwardKernel{extent, view_of(op.x), view_of(op.dy), view_of(op.dx), op.kind};
  });
}

void append_calls(const SwiGlu& op, const Resources&, Translation& to) {
  elementwise(to, {op.y, op.gate, op.up}, [&](const Extent& extent) {
    return SwiGluKernel{extent, view_of(op.gate), view_of(op.up), view_of(op.y)};
  });
}

void append_calls(const SwiGluBackward& op, const Resources&, Translation& to) {
  elementwise(to, {op.dgate, op.gate, op.up, op.dy, op.dup}, [&](const Extent& extent) {
    return SwiGluBackwardKernel{extent,         view_of(op.gate),  view_of(op.up),
                                view_of(op.dy), view_of(op.dgate), view_of(op.dup)};
  });
}

void append_calls(const Norm& op, const Resources&, Translation& to) {
  const View no_bias{};
  append(to,
         NormKernel{rows_of(op.x), view_of(op.x), row_vector(op.gain),
                    op.bias ? row_vector(op.bias) : no_bias, view_of(op.y), view_of(op.stats),
                    bool{op.bias}, op.kind == NormKind::rms, op.epsilon},
         width_of(op.x.cols(), {op.x, op.y, op.gain, op.bias}));
}

/// The weights' gradients first: dx may replace what they are made from.
void append_calls(const NormBackward& op, const Resources&, Translation& to) {
  const View no_bias{};
  append(to,
         NormWeightsKernel{rows_of(op.x), view_of(op.x), view_of(op.stats), view_of(op.dy),
                           row_vector(op.dgain), op.dbias ? row_vector(op.dbias) : no_bias,
                           bool{op.dbias}, op.accumulate},
         1);
  append(to,
         NormBackwardKernel{rows_of(op.x), view_of(op.x), row_vector(op.gain), view_of(op.stats),
                            view_of(op.dy), view_of(op.dx), op.kind == NormKind::rms},
         width_of(op.x.cols(), {op.x, op.dy, op.dx, op.gain}));
}

void append_calls(const Rope& op, const Resources& resources, Translation& to) {
  const std::int64_t half = op.head_dim / 2;
  const Extent extent{op.x.rows(), op.num_heads * half};
  append(to,
         RopeKernel{extent, view_of(op.x), resources.rotary_table, op.seq, op.head_dim,
                    op.inverse ? -1.0F : 1.0F},
         half % wide == 0 ? width_of(extent.cols, {op.x}) : 1);
}

std::vector<float> rotary_table(const Rope& op) {
  const Places places = op.places.count() > 0 ? op.places : Places::all(op.seq);
  const std::int64_t half = op.head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(op.seq * op.head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim);
    const double frequency = std::pow(static_cast<double>(op.theta), exponent);
    for (std::int64_t row = 0; row < op.seq; ++row) {
      const std::int64_t place = places[row] - start_of(op.starts, places[row]);
      const double angle = static_cast<double>(place) * frequency;
      const auto at = static_cast<std::size_t>(row * op.head_dim + i);
      table[at] = static_cast<float>(std::cos(angle));
      table[at + static_cast<std::size_t>(half)] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

void append_calls(const Embedding& op, const Resources&, Translation& to) {
  append(to,
         EmbeddingKernel{rows_of(op.y), ids_of(op.ids), view_of(op.table), view_of(op.y),
                         op.first_row, op.table.rows(), op.accumulate},
         width_of(op.y.cols(), {op.y, op.table}));
}

/// Threads of a column share the table's rows among them: as many as still leave each with some
/// tokens to add.
void append_calls(const EmbeddingBackward& op, const Resources& resources, Translation& to) {
  constexpr std::int64_t most_shares = 256;
  if (!op.accumulate) append_calls(Fill{op.dtable, 0}, resources, to);
  if (op.dy.rows() == 0) return;
  const Extent extent{std::min(op.dtable.rows(), most_shares), op.dtable.cols()};
  append(to,
         EmbeddingBackwardKernel{extent, ids_of(op.ids), view_of(op.dy), view_of(op.dtable),
                                 op.dy.rows(), op.first_row, op.dtable.rows()},
         width_of(extent.cols, {op.dy, op.dtable}));
}

void append_calls(const RowMax& op, const Resources&, Translation& to) {
  append(to, RowMaxKernel{rows_of(op.logits), view_of(op.logits), column_vector(op.maximum)},
         width_of(op.logits.cols(), {op.logits}));
}

void append_calls(const CrossEntropySum& op, const Resources&, Translation& to) {
  const Partials partials = partials_of(op.partials);
  append(to,
         CrossEntropySumKernel{rows_of(op.logits), view_of(op.logits), ids_of(op.targets),
                               column_vector(op.maximum), partials.sums, partials.target_logits,
                               op.first_column},
         width_of(op.logits.cols(), {op.logits}));
}

void append_calls(const CrossEntropyLoss& op, const Resources&, Translation& to) {
  const Partials partials = partials_of(op.partials);
  append(to,
         CrossEntropyLossKernel{{op.loss.numel(), 1},
                                column_vector(op.maximum),
                                partials.sums,
                                partials.target_logits,
                                column_vector(op.loss)},
         1);
}

void append_calls(const CrossEntropyBackward& op, const Resources&, Translation& to) {
  append(to,
         CrossEntropyBackwardKernel{rows_of(op.logits), view_of(op.logits), ids_of(op.targets),
                                    column_vector(op.maximum), partials_of(op.partials).sums,
                                    view_of(op.dlogits), op.first_column, op.scale},
         width_of(op.logits.cols(), {op.logits, op.dlogits}));
}

}  // namespace shardmark::cuda
