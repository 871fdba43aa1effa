#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/reduce.hpp"
#include "core/cpu/vector_math.hpp"
#include "core/error.hpp"

namespace shardmark::kernels {
namespace {

std::int64_t row_bytes(const Tensor& tensor) { return tensor.cols() * size_of(tensor.dtype); }

/// Calls body(x, y, numel) for consecutive pieces of two tensors of equal shape and dtype: rows, or
/// parts of a contiguous tensor however long its rows are.
template <class Body>
void for_pieces(const Context& context, std::int64_t num_operands, const Tensor& x, const Tensor& y,
                const Body& body) {
  const std::int64_t element = size_of(y.dtype);
  if (!x.contiguous() || !y.contiguous()) {
    for_rows(context, y.rows(), num_operands * row_bytes(y),
             [&](std::int64_t first, std::int64_t last) {
               for (std::int64_t r = first; r < last; ++r)
                 body(x.data + r * x.row_stride * element, y.data + r * y.row_stride * element,
                      y.cols());
             });
    return;
  }
  constexpr std::int64_t piece = 4096;
  for_rows(context, (y.numel() + piece - 1) / piece, num_operands * piece * element,
           [&](std::int64_t first, std::int64_t last) {
             const std::int64_t at = first * piece * element;
             body(x.data + at, y.data + at, std::min(y.numel(), last * piece) - first * piece);
           });
}

SHARDMARK_CLONES void add_rows(const Add& op, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row a = row_of(op.a, r);
    const Row b = row_of(op.b, r);
    const Row y = row_of(op.y, r);
    for_vectors(op.y.cols(), [&](std::int64_t c, std::int64_t n)
                                 SHARDMARK_INLINE { y.store(c, n, a.load(c, n) + b.load(c, n)); });
  }
}

SHARDMARK_CLONES void add_bias_rows(const AddBias& op, std::int64_t first, std::int64_t last) {
  const Row bias = row_of(op.bias, 0);
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row y = row_of(op.y, r);
    for_vectors(op.y.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      y.store(c, n, x.load(c, n) + bias.load(c, n));
    });
  }
}

SHARDMARK_CLONES void copy_rows(const Copy& op, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row y = row_of(op.y, r);
    for_vectors(op.y.cols(), [&](std::int64_t c, std::int64_t n)
                                 SHARDMARK_INLINE { y.store(c, n, x.load(c, n)); });
  }
}

SHARDMARK_CLONES void fill_rows(const Fill& op, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    for_vectors(op.x.cols(), [&](std::int64_t c, std::int64_t n)
                                 SHARDMARK_INLINE { x.store(c, n, splat(op.value)); });
  }
}

/// Adds rows [first, last) of a column part to y. The running sums stay in cache.
SHARDMARK_CLONES void sum_rows_part(const SumRows& op, std::int64_t first, std::int64_t last,
                                    std::int64_t column, std::int64_t count) {
  const Row y = row_of(op.y.as<float>() + column);
  if (first == 0 && !op.accumulate)
    for_vectors(count,
                [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE { y.store(c, n, splat(0)); });
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r).from(column);
    for_vectors(count, [&](std::int64_t c, std::int64_t n)
                           SHARDMARK_INLINE { y.store(c, n, y.load(c, n) + x.load(c, n)); });
  }
}

// GPT-2's approximation, x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Beyond 16 sigmoid is
// 0 or 1 exactly; the clamp keeps x^3 finite.
constexpr float gelu_linear = 0.797884561F;
constexpr float gelu_cubic = 0.044715F;
SHARDMARK_INLINE inline Floats clamp16(Floats x) {
  return x > 16.0F ? splat(16) : (x < -16.0F ? splat(-16) : x);
}
SHARDMARK_INLINE inline Floats gelu_tanh(Floats x) {
  const Floats z = clamp16(x);
  return x * sigmoid(2 * gelu_linear * (z + gelu_cubic * z * z * z));
}
SHARDMARK_INLINE inline Floats gelu_tanh_slope(Floats x) {
  const Floats z = clamp16(x);
  const Floats s = sigmoid(2 * gelu_linear * (z + gelu_cubic * z * z * z));
  return s + z * s * (1.0F - s) * (2 * gelu_linear) * (1.0F + 3 * gelu_cubic * z * z);
}
constexpr float inverse_sqrt_2 = 0.707106781F;
constexpr float inverse_sqrt_2_pi = 0.398942280F;
SHARDMARK_INLINE inline Floats gelu_erf(Floats x) {
  return x * (0.5F + 0.5F * erf(x * inverse_sqrt_2));
}
SHARDMARK_INLINE inline Floats gelu_erf_slope(Floats x) {
  const Floats z = clamp16(x);
  return (0.5F + 0.5F * erf(z * inverse_sqrt_2)) + z * inverse_sqrt_2_pi * exp(-0.5F * z * z);
}

SHARDMARK_CLONES void gelu_rows(const Gelu& op, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row y = row_of(op.y, r);
    const auto apply = [&](auto function) SHARDMARK_INLINE {
      for_vectors(op.x.cols(), [&](std::int64_t c, std::int64_t n)
                                   SHARDMARK_INLINE { y.store(c, n, function(x.load(c, n))); });
    };
    if (op.kind == GeluKind::erf)
      apply([](Floats v) SHARDMARK_INLINE { return gelu_erf(v); });
    else
      apply([](Floats v) SHARDMARK_INLINE { return gelu_tanh(v); });
  }
}

SHARDMARK_CLONES void gelu_backward_rows(const GeluBackward& op, std::int64_t first,
                                         std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row x = row_of(op.x, r);
    const Row dy = row_of(op.dy, r);
    const Row dx = row_of(op.dx, r);
    const auto apply = [&](auto slope) SHARDMARK_INLINE {
      for_vectors(op.x.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
        dx.store(c, n, dy.load(c, n) * slope(x.load(c, n)));
      });
    };
    if (op.kind == GeluKind::erf)
      apply([](Floats v) SHARDMARK_INLINE { return gelu_erf_slope(v); });
    else
      apply([](Floats v) SHARDMARK_INLINE { return gelu_tanh_slope(v); });
  }
}

SHARDMARK_CLONES void swiglu_rows(const SwiGlu& op, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row gate = row_of(op.gate, r);
    const Row up = row_of(op.up, r);
    const Row y = row_of(op.y, r);
    for_vectors(op.y.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats z = gate.load(c, n);
      y.store(c, n, z * sigmoid(z) * up.load(c, n));
    });
  }
}

SHARDMARK_CLONES void swiglu_backward_rows(const SwiGluBackward& op, std::int64_t first,
                                           std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    const Row gate = row_of(op.gate, r);
    const Row up = row_of(op.up, r);
    const Row dy = row_of(op.dy, r);
    const Row dgate = row_of(op.dgate, r);
    const Row dup = row_of(op.dup, r);
    for_vectors(op.gate.cols(), [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
      const Floats z = gate.load(c, n);
      const Floats s = sigmoid(z);
      const Floats d = dy.load(c, n);
      const Floats slope = s * (1.0F + z * (1.0F - s));
      const Floats gate_gradient = d * up.load(c, n) * slope;
      dup.store(c, n, d * (z * s));
      dgate.store(c, n, gate_gradient);
    });
  }
}

}  // namespace

const char* run(const Add& op, const Context& context) {
  for_rows(context, op.y.rows(), 3 * row_bytes(op.y),
           [&](std::int64_t first, std::int64_t last) { add_rows(op, first, last); });
  return "shardmark_add";
}

const char* run(const AddBias& op, const Context& context) {
  for_rows(context, op.y.rows(), 2 * row_bytes(op.y),
           [&](std::int64_t first, std::int64_t last) { add_bias_rows(op, first, last); });
  return "shardmark_add_bias";
}

const char* run(const SumRows& op, const Context& context) {
  for_column_parts_of_rows(
      context, op.x,
      [&](std::int64_t first, std::int64_t last, std::int64_t column, std::int64_t count) {
        sum_rows_part(op, first, last, column, count);
      });
  return "shardmark_sum_rows";
}

const char* run(const Copy& op, const Context& context) {
  const auto converts = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  const bool same = op.x.dtype == op.y.dtype;
  SHARDMARK_CHECK(same || (converts(op.x.dtype) && converts(op.y.dtype)), "copy of ",
                  name_of(op.x.dtype), " to ", name_of(op.y.dtype),
                  ": only f32 and bf16 are converted");
  if (same)
    for_pieces(context, 2, op.x, op.y, [&](const std::byte* x, std::byte* y, std::int64_t numel) {
      std::memmove(y, x, static_cast<std::size_t>(numel * size_of(op.x.dtype)));
    });
  else
    for_rows(context, op.y.rows(), row_bytes(op.x) + row_bytes(op.y),
             [&](std::int64_t first, std::int64_t last) { copy_rows(op, first, last); });
  return "shardmark_copy";
}

const char* run(const Combine& op, const Context& context) {
  for_pieces(context, 3, op.x, op.y, [&](const std::byte* x, std::byte* y, std::int64_t numel) {
    combine(op.x.dtype, op.reduction, x, y, numel);
  });
  return "shardmark_combine";
}

const char* run(const Divide& op, const Context& context) {
  for_pieces(context, 2, op.x, op.x, [&](const std::byte*, std::byte* x, std::int64_t numel) {
    divide(op.x.dtype, x, numel, op.divisor);
  });
  return "shardmark_divide";
}

const char* run(const Fill& op, const Context& context) {
  for_rows(context, op.x.rows(), row_bytes(op.x),
           [&](std::int64_t first, std::int64_t last) { fill_rows(op, first, last); });
  return "shardmark_fill";
}

const char* run(const Gelu& op, const Context& context) {
  for_rows(context, op.x.rows(), 4 * row_bytes(op.x),
           [&](std::int64_t first, std::int64_t last) { gelu_rows(op, first, last); });
  return op.kind == GeluKind::erf ? "shardmark_gelu_erf" : "shardmark_gelu_tanh";
}

const char* run(const GeluBackward& op, const Context& context) {
  for_rows(context, op.x.rows(), 5 * row_bytes(op.x),
           [&](std::int64_t first, std::int64_t last) { gelu_backward_rows(op, first, last); });
  return op.kind == GeluKind::erf ? "shardmark_gelu_erf_bwd" : "shardmark_gelu_tanh_bwd";
}

const char* run(const SwiGlu& op, const Context& context) {
  for_rows(context, op.y.rows(), 4 * row_bytes(op.y),
           [&](std::int64_t first, std::int64_t last) { swiglu_rows(op, first, last); });
  return "shardmark_swiglu";
}

const char* run(const SwiGluBackward& op, const Context& context) {
  for_rows(context, op.gate.rows(), 6 * row_bytes(op.gate),
           [&](std::int64_t first, std::int64_t last) { swiglu_backward_rows(op, first, last); });
  return "shardmark_swiglu_bwd";
}

}  // namespace shardmark::kernels
