#include "tests/unit/kernels_fixture.hpp"

namespace shardmark {
namespace {

struct Inputs {
  Matrix x, gain, bias;
};

Matrix reference_norm(const Inputs& in, NormKind kind, double epsilon, Matrix* stats = nullptr) {
  Matrix y = in.x;
  const auto cols = static_cast<double>(in.x.cols);
  for (std::int64_t r = 0; r < y.rows; ++r) {
    double mean = 0;
    double variance = 0;
    for (std::int64_t c = 0; c < y.cols; ++c) mean += in.x(r, c) / cols;
    if (kind == NormKind::rms) mean = 0;
    for (std::int64_t c = 0; c < y.cols; ++c) variance += std::pow(in.x(r, c) - mean, 2) / cols;
    const double scale = 1 / std::sqrt(variance + epsilon);
    for (std::int64_t c = 0; c < y.cols; ++c) {
      y(r, c) = (in.x(r, c) - mean) * scale * in.gain(0, c);
      if (kind == NormKind::layer) y(r, c) += in.bias(0, c);
    }
    if (stats != nullptr) {
      (*stats)(r, 0) = mean;
      (*stats)(r, 1) = scale;
    }
  }
  return y;
}

class NormTest : public KernelTest {
 protected:
  Norm make(const Inputs& in, DType dtype, NormKind kind, std::int64_t gap) {
    Norm op;
    op.x = place(in.x, dtype, gap);
    op.gain = place(in.gain, dtype);
    if (kind == NormKind::layer) op.bias = place(in.bias, dtype);
    op.y = empty(in.x.rows, in.x.cols, dtype, gap);
    op.stats = empty(in.x.rows, 2, DType::f32, gap);
    op.kind = kind;
    return op;
  }
  Inputs inputs(std::int64_t rows, std::int64_t cols, DType dtype, double offset = 0) {
    Inputs in{random(rows, cols, dtype), random(1, cols, dtype), random(1, cols, dtype)};
    in.x = in.x.map([&](double v) { return rounded(v + offset, dtype); });
    return in;
  }
};

TEST_F(NormTest, ForwardAndStatistics) {
  for (const DType dtype : dtypes)
    for (const NormKind kind : {NormKind::layer, NormKind::rms})
      for (const std::int64_t cols : {1, 37, 129, 512})
        for (const std::int64_t gap : {0, 3}) {
          const Inputs in = inputs(7, cols, dtype);
          const Norm op = make(in, dtype, kind, gap);
          run(op);
          Matrix stats{7, 2};
          const Matrix reference = reference_norm(in, kind, 1e-5F, &stats);
          EXPECT_LE(relative_error(read(op.y), reference), tolerance(dtype)) << cols;
          EXPECT_LE(relative_error(read(op.stats), stats), 1e-5) << cols;
          EXPECT_TRUE(gap_untouched(op.y) && gap_untouched(op.stats));
        }
}

TEST_F(NormTest, LargeMeanDoesNotSpoilTheVariance) {
  const Inputs in = inputs(3, 513, DType::f32, 1000);
  const Norm op = make(in, DType::f32, NormKind::layer, 0);
  run(op);
  EXPECT_LE(relative_error(read(op.y), reference_norm(in, NormKind::layer, 1e-5F)), 1e-3);
}

TEST_F(NormTest, Gradients) {
  for (const DType dtype : dtypes)
    for (const NormKind kind : {NormKind::layer, NormKind::rms})
      for (const std::int64_t gap : {0, 3}) {
        Inputs in = inputs(9, 37, dtype, 0.3);
        const Matrix dy = random(9, 37, dtype);
        const Norm op = make(in, dtype, kind, gap);
        run(op);
        NormBackward backward;
        backward.x = op.x;
        backward.gain = op.gain;
        backward.stats = op.stats;
        backward.dy = place(dy, dtype, gap);
        backward.dx = empty(9, 37, dtype, gap);
        backward.dgain = empty(1, 37, DType::f32);
        if (kind == NormKind::layer) backward.dbias = empty(1, 37, DType::f32);
        backward.kind = kind;
        run(backward);
        const auto loss = [&] { return dot(reference_norm(in, kind, 1e-5F), dy); };
        EXPECT_LE(relative_error(read(backward.dx), numeric_gradient(in.x, loss)),
                  tolerance(dtype));
        EXPECT_LE(relative_error(read(backward.dgain), numeric_gradient(in.gain, loss)), 1e-5);
        if (kind == NormKind::layer) {
          EXPECT_LE(relative_error(read(backward.dbias), numeric_gradient(in.bias, loss)), 1e-5);
        }
        EXPECT_TRUE(gap_untouched(backward.dx));
      }
}

TEST_F(NormTest, ParameterGradientsAddToWhatIsThere) {
  for (const DType dtype : dtypes)
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const Norm op = make(inputs(100, 37, dtype), dtype, kind, 3);
      run(op);
      NormBackward backward{op.x,
                            op.gain,
                            op.stats,
                            place(random(100, 37, dtype), dtype),
                            empty(100, 37, dtype),
                            empty(1, 37, DType::f32),
                            empty(1, 37, DType::f32),
                            kind};
      if (kind == NormKind::rms) backward.dbias = {};
      run(backward);
      NormBackward adds = backward;
      adds.accumulate = true;
      adds.dx = empty(100, 37, dtype);
      for (auto [sum, added] :
           {std::pair{&backward.dgain, &adds.dgain}, std::pair{&backward.dbias, &adds.dbias}}) {
        if (!*sum) continue;
        *added = place(random(1, 37, DType::f32), DType::f32);
        Matrix reference = read(*added);
        for (std::int64_t c = 0; c < 37; ++c) reference(0, c) += read(*sum)(0, c);
        *sum = place(reference, DType::f32);
      }
      run(adds);
      EXPECT_EQ(bytes(adds.dx), bytes(backward.dx));
      EXPECT_LE(relative_error(read(adds.dgain), read(backward.dgain)), 1e-6);
      if (adds.dbias) {
        EXPECT_LE(relative_error(read(adds.dbias), read(backward.dbias)), 1e-6);
      }
    }
}

TEST_F(NormTest, TilesAndThreadsGiveTheSameBits) {
  const Inputs in = inputs(200, 700, DType::f32);
  const Norm op = make(in, DType::f32, NormKind::layer, 0);
  run(op);
  for (const bool accumulate : {false, true}) {
    const Matrix before = random(1, 700, DType::f32);
    NormBackward one{op.x,
                     op.gain,
                     op.stats,
                     place(random(200, 700, DType::f32), DType::f32),
                     empty(200, 700, DType::f32),
                     place(before, DType::f32),
                     place(before, DType::f32),
                     NormKind::layer,
                     accumulate};
    run(one);
    NormBackward other = one;
    other.dx = empty(200, 700, DType::f32);
    other.dgain = place(before, DType::f32);
    other.dbias = place(before, DType::f32);
    Kernels two{2, arena_};
    hook_ = {};
    hook_.wants = true;
    two.run(other, hook_);
    hook_.wants = false;
    EXPECT_GT(hook_.num_calls, 0);
    EXPECT_EQ(bytes(other.dx), bytes(one.dx));
    EXPECT_EQ(bytes(other.dgain), bytes(one.dgain));
    EXPECT_EQ(bytes(other.dbias), bytes(one.dbias));
  }
}

}  // namespace
}  // namespace shardmark
