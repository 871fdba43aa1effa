#include "tests/unit/kernels_fixture.hpp"

namespace shardmark {
namespace {

double gelu(double x, GeluKind kind) {
  if (kind == GeluKind::erf) return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu(double x) { return x / (1 + std::exp(-x)); }

using ElementwiseTest = KernelTest;

Matrix combine(const Matrix& a, const Matrix& b, const std::function<double(double, double)>& f) {
  Matrix result = a;
  for (std::size_t i = 0; i < a.values.size(); ++i) result.values[i] = f(a.values[i], b.values[i]);
  return result;
}

TEST_F(ElementwiseTest, Add) {
  for (const DType dtype : dtypes)
    for (const std::int64_t gap : {0, 5}) {
      const Matrix a = random(7, 37, dtype);
      const Matrix b = random(7, 37, dtype);
      const Add op{place(a, dtype, gap), place(b, dtype, gap), empty(7, 37, dtype, gap)};
      run(op);
      EXPECT_LE(relative_error(read(op.y), combine(a, b, std::plus<>{})), tolerance(dtype));
      EXPECT_TRUE(gap_untouched(op.y));
      run(Add{op.a, op.b, op.a});
      EXPECT_EQ(bytes(op.a), bytes(op.y)) << "in place";
    }
}

TEST_F(ElementwiseTest, AddBias) {
  for (const DType dtype : dtypes) {
    const Matrix x = random(9, 129, dtype);
    const Matrix bias = random(1, 129, dtype);
    Matrix reference = x;
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < 129; ++c) reference(r, c) += bias(0, c);
    const AddBias op{place(x, dtype, 3), place(bias, dtype), empty(9, 129, dtype, 3)};
    run(op);
    EXPECT_LE(relative_error(read(op.y), reference), tolerance(dtype));
    EXPECT_TRUE(gap_untouched(op.y));
  }
}

TEST_F(ElementwiseTest, SumRows) {
  for (const DType dtype : dtypes) {
    const Matrix x = random(129, 150, dtype);
    Matrix reference{1, 150};
    for (std::int64_t r = 0; r < 129; ++r)
      for (std::int64_t c = 0; c < 150; ++c) reference(0, c) += x(r, c);
    const SumRows op{place(x, dtype, 4), empty(1, 150, DType::f32)};
    run(op);
    EXPECT_LE(relative_error(read(op.y), reference), 1e-5);
    Kernels two{2, arena_};
    const SumRows shared{op.x, empty(1, 150, DType::f32)};
    two.run(shared, hook_);
    EXPECT_EQ(bytes(shared.y), bytes(op.y)) << "two threads";
  }
}

TEST_F(ElementwiseTest, SumRowsAddsToWhatIsThere) {
  for (const DType dtype : dtypes) {
    const Matrix x = random(129, 150, dtype);
    const Matrix before = random(1, 150, DType::f32);
    Matrix reference = before;
    for (std::int64_t r = 0; r < 129; ++r)
      for (std::int64_t c = 0; c < 150; ++c) reference(0, c) += x(r, c);
    const SumRows op{place(x, dtype, 4), place(before, DType::f32), true};
    run(op);
    EXPECT_LE(relative_error(read(op.y), reference), 1e-5);
    Kernels two{2, arena_};
    const SumRows shared{op.x, place(before, DType::f32), true};
    hook_.wants = true;
    two.run(shared, hook_);
    EXPECT_EQ(bytes(shared.y), bytes(op.y)) << "two threads";
  }
}

TEST_F(ElementwiseTest, CopyConvertsWithRoundingToEven) {
  Matrix x{1, 6};
  // Halfway cases between neighbouring bf16 values, an overflow, and what is exact.
  x.values = {1.00390625, 1.01171875, -1.00390625, 3.4e38, 0.5, 1.0 + 1.0 / 64};
  const Tensor single = place(x, DType::f32);
  const Tensor half = empty(1, 6, DType::bf16);
  run(Copy{single, half});
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(half.as<std::uint16_t>()[i], to_bf16(static_cast<float>(x(0, i)))) << x(0, i);
  EXPECT_EQ(read(half)(0, 0), 1.0);
  EXPECT_EQ(read(half)(0, 1), 1.015625);
  const Tensor back = empty(1, 6, DType::f32);
  run(Copy{half, back});
  EXPECT_EQ(read(back).values, read(half).values);
}

TEST_F(ElementwiseTest, CopyMovesColumnBlocks) {
  const Matrix x = random(37, 50, DType::bf16);
  const Tensor from = place(x, DType::bf16);
  const Tensor to = empty(37, 19, DType::f32, 6);
  run(Copy{from.column_block(7, 19), to});
  for (std::int64_t r = 0; r < 37; ++r)
    for (std::int64_t c = 0; c < 19; ++c) EXPECT_EQ(read(to)(r, c), x(r, c + 7));
  EXPECT_TRUE(gap_untouched(to));
}

TEST_F(ElementwiseTest, NanStaysNan) {
  const float nan = std::nanf("");
  Matrix x{1, 17};
  x(0, 3) = nan;
  const Tensor single = place(x, DType::f32);
  for (const DType dtype : dtypes) {
    const Tensor y = empty(1, 17, dtype);
    run(Copy{single, y});
    EXPECT_TRUE(std::isnan(read(y)(0, 3)));
    EXPECT_EQ(read(y)(0, 4), 0);
  }
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    const Tensor y = empty(1, 17, DType::f32);
    run(Gelu{single, y, kind});
    EXPECT_TRUE(std::isnan(read(y)(0, 3)));
  }
}

TEST_F(ElementwiseTest, Fill) {
  for (const DType dtype : dtypes) {
    const Tensor x = empty(3, 37, dtype, 2);
    run(Fill{x, 1.5F});
    for (const double value : read(x).values) EXPECT_EQ(value, 1.5);
    EXPECT_TRUE(gap_untouched(x));
  }
}

TEST_F(ElementwiseTest, GeluAndItsGradient) {
  for (const DType dtype : dtypes)
    for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
      Matrix x = random(5, 129, dtype, 2);
      const Matrix dy = random(5, 129, dtype);
      const auto forward = [&] { return x.map([&](double v) { return gelu(v, kind); }); };
      const Gelu op{place(x, dtype, 3), empty(5, 129, dtype, 3), kind};
      run(op);
      EXPECT_LE(relative_error(read(op.y), forward()), tolerance(dtype));
      EXPECT_TRUE(gap_untouched(op.y));
      const GeluBackward backward{op.x, place(dy, dtype, 3), empty(5, 129, dtype, 3), kind};
      run(backward);
      const Matrix gradient = numeric_gradient(x, [&] { return dot(forward(), dy); });
      EXPECT_LE(relative_error(read(backward.dx), gradient), tolerance(dtype));
      run(GeluBackward{op.x, backward.dy, backward.dy, kind});
      EXPECT_EQ(bytes(backward.dy), bytes(backward.dx)) << "in place";
    }
}

TEST_F(ElementwiseTest, GeluIsExactFarOut) {
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    Matrix x{1, 6};
    x.values = {16, -16, 1000, -1000, 0, 3e30};
    Matrix ones{1, 6};
    ones.values.assign(6, 1);
    const Gelu op{place(x, DType::f32), empty(1, 6, DType::f32), kind};
    run(op);
    EXPECT_EQ(read(op.y).values, (std::vector<double>{16, 0, 1000, 0, 0, 3e30F}));
    const GeluBackward backward{op.x, place(ones, DType::f32), empty(1, 6, DType::f32), kind};
    run(backward);
    EXPECT_EQ(read(backward.dx).values, (std::vector<double>{1, 0, 1, 0, 0.5, 1}));
  }
}

TEST_F(ElementwiseTest, SwiGluAndItsGradients) {
  for (const DType dtype : dtypes) {
    Matrix gate = random(5, 37, dtype);
    Matrix up = random(5, 37, dtype);
    const Matrix dy = random(5, 37, dtype);
    const auto forward = [&] {
      return combine(gate, up, [](double g, double u) { return silu(g) * u; });
    };
    // Gate and up are halves of one tensor, as the fused projection leaves them.
    const Tensor both = empty(5, 74, dtype);
    run(Copy{place(gate, dtype), both.column_block(0, 37)});
    run(Copy{place(up, dtype), both.column_block(37, 37)});
    const SwiGlu op{both.column_block(0, 37), both.column_block(37, 37), empty(5, 37, dtype)};
    run(op);
    EXPECT_LE(relative_error(read(op.y), forward()), tolerance(dtype));
    const Tensor gradients = empty(5, 74, dtype);
    run(SwiGluBackward{op.gate, op.up, place(dy, dtype), gradients.column_block(0, 37),
                       gradients.column_block(37, 37)});
    const auto loss = [&] { return dot(forward(), dy); };
    EXPECT_LE(relative_error(read(gradients.column_block(0, 37)), numeric_gradient(gate, loss)),
              tolerance(dtype));
    EXPECT_LE(relative_error(read(gradients.column_block(37, 37)), numeric_gradient(up, loss)),
              tolerance(dtype));
  }
}

TEST_F(ElementwiseTest, SwiGluIsExactFarOut) {
  Matrix gate{1, 3};
  gate.values = {128, -128, 0};
  Matrix ones{1, 3};
  ones.values.assign(3, 1);
  const Tensor up = place(ones, DType::f32);
  const SwiGlu op{place(gate, DType::f32), up, empty(1, 3, DType::f32)};
  run(op);
  EXPECT_EQ(read(op.y).values, (std::vector<double>{128, 0, 0}));
  const SwiGluBackward backward{op.gate, up, up, empty(1, 3, DType::f32), empty(1, 3, DType::f32)};
  run(backward);
  EXPECT_EQ(read(backward.dgate).values, (std::vector<double>{1, 0, 0.5}));
  EXPECT_EQ(read(backward.dup).values, (std::vector<double>{128, 0, 0}));
}

TEST_F(ElementwiseTest, AnElementDoesNotDependOnItsPlace) {
  constexpr std::int64_t cols = 64;
  const Matrix x = random(3, cols, DType::f32, 3);
  const Tensor from = place(x, DType::f32);
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    const Tensor whole = empty(3, cols, DType::f32);
    run(Gelu{from, whole, kind});
    for (std::int64_t first = 0; first < cols; first += 5) {
      const std::int64_t count = std::min<std::int64_t>(21, cols - first);
      const Tensor part = empty(3, count, DType::f32);
      run(Gelu{from.column_block(first, count), part, kind});
      EXPECT_EQ(bytes(part), bytes(whole.column_block(first, count)));
    }
  }
}

TEST_F(ElementwiseTest, TilesAndThreadsGiveTheSameBits) {
  const Matrix x = random(300, 2100, DType::f32, 3);
  const Tensor from = place(x, DType::f32);
  const Tensor whole = empty(300, 2100, DType::f32);
  run(Gelu{from, whole, GeluKind::erf});
  const Tensor tiled = empty(300, 2100, DType::f32);
  hook_.wants = true;
  Kernels two{2, arena_};
  two.run(Gelu{from, tiled, GeluKind::erf}, hook_);
  EXPECT_GT(hook_.num_calls, 2);
  EXPECT_EQ(bytes(tiled), bytes(whole));
}

}  // namespace
}  // namespace shardmark
