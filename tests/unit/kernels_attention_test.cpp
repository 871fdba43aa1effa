#include "tests/unit/kernels_fixture.hpp"

namespace shardmark {
namespace {

struct Inputs {
  Matrix q, k, v;
};
struct Outputs {
  Matrix o, lse, dq, dk, dv;
};

/// Calls visit(batch, head, kv_head) for every query head.
template <class Visit>
void for_heads(const AttentionShape& s, const Visit& visit) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) visit(b, h, h / (s.heads / s.kv_heads));
}

/// The definition, row by row; gradients of sum(o * d_o) by the chain rule.
Outputs reference_attention(const AttentionShape& s, const Inputs& in, const Matrix* d_o) {
  Outputs out{Matrix{in.q.rows, in.q.cols}, Matrix{s.batch * s.heads, s.seq},
              Matrix{in.q.rows, in.q.cols}, Matrix{in.k.rows, in.k.cols},
              Matrix{in.v.rows, in.v.cols}};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const std::int64_t d = s.head_dim;
  for_heads(s, [&](std::int64_t b, std::int64_t h, std::int64_t g) {
    for (std::int64_t i = 0; i < s.seq; ++i) {
      const std::int64_t row = b * s.seq + i;
      const std::int64_t keys = s.causal ? i + 1 : s.seq;
      std::vector<double> p(static_cast<std::size_t>(keys));
      double total = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < d; ++c)
          score += in.q(row, h * d + c) * in.k(b * s.seq + j, g * d + c);
        total += p[static_cast<std::size_t>(j)] = std::exp(score * scale);
      }
      out.lse(b * s.heads + h, i) = std::log(total);
      double delta = 0;
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::int64_t c = 0; c < d; ++c)
          out.o(row, h * d + c) +=
              p[static_cast<std::size_t>(j)] / total * in.v(b * s.seq + j, g * d + c);
      if (d_o == nullptr) continue;
      for (std::int64_t c = 0; c < d; ++c) delta += out.o(row, h * d + c) * (*d_o)(row, h * d + c);
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t key = b * s.seq + j;
        const double weight = p[static_cast<std::size_t>(j)] / total;
        double dp = 0;
        for (std::int64_t c = 0; c < d; ++c) dp += (*d_o)(row, h * d + c) * in.v(key, g * d + c);
        const double ds = weight * (dp - delta) * scale;
        for (std::int64_t c = 0; c < d; ++c) {
          out.dv(key, g * d + c) += weight * (*d_o)(row, h * d + c);
          out.dq(row, h * d + c) += ds * in.k(key, g * d + c);
          out.dk(key, g * d + c) += ds * in.q(row, h * d + c);
        }
      }
    }
  });
  return out;
}

class AttentionTest : public KernelTest {
 protected:
  Inputs inputs(const AttentionShape& s, DType dtype) {
    const std::int64_t tokens = s.batch * s.seq;
    return {random(tokens, s.heads * s.head_dim, dtype),
            random(tokens, s.kv_heads * s.head_dim, dtype),
            random(tokens, s.kv_heads * s.head_dim, dtype)};
  }
  Attention make(const AttentionShape& s, const Inputs& in, DType dtype, std::int64_t gap) {
    return {place(in.q, dtype, gap),
            place(in.k, dtype, gap),
            place(in.v, dtype, gap),
            empty(in.q.rows, in.q.cols, dtype, gap),
            empty(s.batch * s.heads, s.seq, DType::f32),
            s};
  }
  AttentionBackward make_backward(const Attention& f, const Matrix& d_o, std::int64_t gap) {
    AttentionBackward op;
    op.q = f.q;
    op.k = f.k;
    op.v = f.v;
    op.o = f.o;
    op.lse = f.lse;
    op.d_o = place(d_o, f.q.dtype, gap);
    op.dq = empty(f.q.rows(), f.q.cols(), f.q.dtype, gap);
    op.dk = empty(f.k.rows(), f.k.cols(), f.q.dtype, gap);
    op.dv = empty(f.k.rows(), f.k.cols(), f.q.dtype, gap);
    op.shape = f.shape;
    return op;
  }
  static std::vector<std::vector<std::byte>> all_bytes(const Attention& f,
                                                       const AttentionBackward& b) {
    return {bytes(f.o), bytes(f.lse), bytes(b.dq), bytes(b.dk), bytes(b.dv)};
  }
};

TEST_F(AttentionTest, ForwardAndBackwardAgreeWithTheDefinition) {
  const AttentionShape shapes[] = {
      {2, 37, 3, 3, 8, true},  {2, 37, 3, 1, 5, false},   {1, 129, 4, 2, 16, true},
      {1, 300, 2, 1, 8, true}, {1, 300, 1, 1, 20, false}, {1, 1, 2, 2, 4, true},
      {1, 513, 1, 1, 4, true},
  };
  for (const DType dtype : dtypes)
    for (const AttentionShape& s : shapes)
      for (const std::int64_t gap : {0, 9}) {
        const Inputs in = inputs(s, dtype);
        const Matrix d_o = random(in.q.rows, in.q.cols, dtype);
        const Outputs reference = reference_attention(s, in, &d_o);
        const Attention op = make(s, in, dtype, gap);
        EXPECT_STREQ(run(op), "shardmark_attention_fwd");
        EXPECT_LE(relative_error(read(op.o), reference.o), tolerance(dtype)) << s.seq;
        EXPECT_LE(relative_error(read(op.lse), reference.lse), 1e-5) << s.seq;
        const AttentionBackward backward = make_backward(op, d_o, gap);
        run(backward);
        EXPECT_LE(relative_error(read(backward.dv), reference.dv), tolerance(dtype)) << s.seq;
        if (s.seq > 1) {  // with one key the probabilities are constant
          EXPECT_LE(relative_error(read(backward.dq), reference.dq), tolerance(dtype)) << s.seq;
          EXPECT_LE(relative_error(read(backward.dk), reference.dk), tolerance(dtype)) << s.seq;
        }
        for (const Tensor& written : {op.o, backward.dq, backward.dk, backward.dv})
          EXPECT_TRUE(gap_untouched(written));
      }
}

TEST_F(AttentionTest, ReferenceGradientsAreDifferences) {
  const AttentionShape s{1, 7, 2, 1, 3, true};
  Inputs in = inputs(s, DType::f32);
  const Matrix d_o = random(7, 6, DType::f32);
  const Outputs reference = reference_attention(s, in, &d_o);
  const auto loss = [&] { return dot(reference_attention(s, in, nullptr).o, d_o); };
  EXPECT_LE(relative_error(reference.dq, numeric_gradient(in.q, loss)), 1e-6);
  EXPECT_LE(relative_error(reference.dk, numeric_gradient(in.k, loss)), 1e-6);
  EXPECT_LE(relative_error(reference.dv, numeric_gradient(in.v, loss)), 1e-6);
}

TEST_F(AttentionTest, OneHotSoftmaxIsExact) {
  // Query i is 400 times the unit vector of key (7 i) % seen: every other score is 200 lower.
  const AttentionShape s{1, 300, 1, 1, 4, false};
  Inputs in{Matrix{300, 4}, Matrix{300, 4}, random_integers(300, 4, 50)};
  for (std::int64_t t = 0; t < 300; ++t) {
    in.q(t, (7 * t) % 4) = 400;
    if (t < 4) in.k(t, t) = 1;
  }
  for (const DType dtype : dtypes) {
    const Attention op = make(s, in, dtype, 0);
    run(op);
    for (std::int64_t t = 0; t < 300; ++t)
      for (std::int64_t c = 0; c < 4; ++c) EXPECT_EQ(read(op.o)(t, c), in.v((7 * t) % 4, c));
    EXPECT_EQ(read(op.lse).values, std::vector<double>(300, 200));
    const Matrix d_o = random_integers(300, 4, 3);
    const AttentionBackward backward = make_backward(op, d_o, 0);
    run(backward);
    Matrix dv{300, 4};
    for (std::int64_t t = 0; t < 300; ++t)
      for (std::int64_t c = 0; c < 4; ++c) dv((7 * t) % 4, c) += d_o(t, c);
    EXPECT_EQ(read(backward.dv).values, dv.values);
    EXPECT_EQ(read(backward.dq).values, std::vector<double>(1200, 0));
    EXPECT_EQ(read(backward.dk).values, std::vector<double>(1200, 0));
  }
}

TEST_F(AttentionTest, TilesThreadsAndSplitHeadsGiveTheSameBits) {
  const AttentionShape s{1, 300, 4, 2, 8, true};
  const Inputs in = inputs(s, DType::f32);
  const Matrix d_o = random(300, 32, DType::f32);
  const Attention one = make(s, in, DType::f32, 0);
  run(one);
  const AttentionBackward one_backward = make_backward(one, d_o, 0);
  run(one_backward);
  hook_.wants = true;
  for (const int num_threads : {1, 2}) {
    Kernels kernels{num_threads, arena_};
    hook_.num_calls = 0;
    const Attention other = make(s, in, DType::f32, 0);
    kernels.run(other, hook_);
    const AttentionBackward other_backward = make_backward(other, d_o, 0);
    kernels.run(other_backward, hook_);
    EXPECT_GT(hook_.num_calls, 0);
    EXPECT_EQ(all_bytes(other, other_backward), all_bytes(one, one_backward)) << num_threads;
  }
  // The second KV head with its two query heads alone, as a rank of tp 2 has them.
  const AttentionShape half{1, 300, 2, 1, 8, true};
  const Attention part{one.q.column_block(16, 16), one.k.column_block(8, 8),
                       one.v.column_block(8, 8),   empty(300, 16, DType::f32),
                       empty(2, 300, DType::f32),  half};
  run(part);
  EXPECT_EQ(bytes(part.o), bytes(one.o.column_block(16, 16)));
}

TEST_F(AttentionTest, ScratchIsWhatIsPredicted) {
  const AttentionShape s{1, 300, 4, 2, 8, true};
  for (const int num_threads : {1, 2}) {
    const Attention op = make(s, inputs(s, DType::f32), DType::f32, 0);
    const AttentionBackward backward = make_backward(op, random(300, 32, DType::f32), 0);
    for (const Op& each : {Op{op}, Op{backward}}) {
      Arena arena{1 << 26};
      Kernels kernels{num_threads, arena};
      kernels.run(each, hook_);
      EXPECT_EQ(arena.peak(), workspace_bytes(each, num_threads));
    }
  }
}

TEST_F(AttentionTest, RopeRotatesAndRotatesBack) {
  for (const DType dtype : dtypes)
    for (const std::int64_t head_dim : {6, 32}) {
      const std::int64_t seq = 37;
      const Matrix x = random(2 * seq, 3 * head_dim, dtype);
      Matrix reference = x;
      const std::int64_t half = head_dim / 2;
      for (std::int64_t t = 0; t < x.rows; ++t)
        for (std::int64_t h = 0; h < 3; ++h)
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle =
                static_cast<double>(t % seq) *
                std::pow(500.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
            const double a = x(t, h * head_dim + i);
            const double b = x(t, h * head_dim + half + i);
            reference(t, h * head_dim + i) = a * std::cos(angle) - b * std::sin(angle);
            reference(t, h * head_dim + half + i) = b * std::cos(angle) + a * std::sin(angle);
          }
      const Rope op{place(x, dtype, 7), seq, 3, head_dim, 500.0F, false};
      run(op);
      EXPECT_LE(relative_error(read(op.x), reference), tolerance(dtype));
      EXPECT_TRUE(gap_untouched(op.x));
      Rope back = op;
      back.inverse = true;
      run(back);
      EXPECT_LE(relative_error(read(op.x), x), tolerance(dtype));
    }
}

}  // namespace
}  // namespace shardmark
