#include "core/cpu/matmul.hpp"
#include "core/launch.hpp"
#include "tests/unit/kernels_fixture.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace shardmark {
namespace {

struct Case {
  std::int64_t m, n, k;
};
constexpr Case odd_cases[] = {{1, 37, 5}, {37, 129, 64}, {129, 3, 37}, {600, 80, 70}};

class MatmulTest : public KernelTest {
 protected:
  struct Options {
    bool transpose_a{false}, transpose_b{false}, bias{false}, accumulate{false};
    std::int64_t gap{0};
  };
  /// Operands of op(a) op(b), stored transposed where asked.
  static Matrix transposed_if(bool yes, const Matrix& x) {
    if (!yes) return x;
    Matrix result{x.cols, x.rows};
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.cols; ++c) result(c, r) = x(r, c);
    return result;
  }
  static Matrix product(const Matrix& a, const Matrix& b) {
    Matrix c{a.rows, b.cols};
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t k = 0; k < a.cols; ++k)
        for (std::int64_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
    return c;
  }
  Matmul make(const Case& size, DType dtype, DType c_dtype, const Options& options,
              Matrix& reference) {
    const Matrix a = random(size.m, size.k, dtype);
    const Matrix b = random(size.k, size.n, dtype);
    reference = product(a, b);
    Matmul op;
    op.transpose_a = options.transpose_a;
    op.transpose_b = options.transpose_b;
    op.accumulate = options.accumulate;
    op.a = place(transposed_if(options.transpose_a, a), dtype, options.gap);
    op.b = place(transposed_if(options.transpose_b, b), dtype, options.gap);
    if (options.bias) {
      const Matrix bias = random(1, size.n, dtype);
      op.bias = place(bias, dtype);
      for (std::int64_t i = 0; i < size.m; ++i)
        for (std::int64_t j = 0; j < size.n; ++j) reference(i, j) += bias(0, j);
    }
    const Matrix c = random(size.m, size.n, c_dtype);
    op.c = place(c, c_dtype, options.gap);
    if (options.accumulate)
      for (std::size_t i = 0; i < c.values.size(); ++i) reference.values[i] += c.values[i];
    return op;
  }
  void check(const Case& size, DType dtype, DType c_dtype, const Options& options) {
    Matrix reference{0, 0};
    const Matmul op = make(size, dtype, c_dtype, options, reference);
    const std::string name = run(op);
    EXPECT_FALSE(name.empty());
    EXPECT_LE(relative_error(read(op.c), reference), tolerance(dtype))
        << size.m << "x" << size.k << "x" << size.n << " by " << name;
    EXPECT_TRUE(gap_untouched(op.c));
  }
};

TEST_F(MatmulTest, AgreesWithReferenceForEveryTransposition) {
  for (const DType dtype : dtypes)
    for (const Case& size : odd_cases)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          check(size, dtype, dtype, {transpose_a, transpose_b});
}

TEST_F(MatmulTest, AgreesWithReferenceOnColumnBlocks) {
  for (const DType dtype : dtypes)
    for (const Case& size : odd_cases)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          check(size, dtype, dtype, {transpose_a, transpose_b, false, false, 11});
}

TEST_F(MatmulTest, AddsBiasAndAccumulates) {
  for (const DType dtype : dtypes)
    for (const Case& size : odd_cases)
      for (const std::int64_t gap : {0, 11}) {
        check(size, dtype, dtype, {false, false, true, false, gap});
        check(size, dtype, dtype, {false, true, false, true, gap});
        check(size, dtype, dtype, {false, false, true, true, gap});
      }
}

TEST_F(MatmulTest, WeightGradientIsF32) {
  for (const Case& size : odd_cases)
    for (const bool accumulate : {false, true})
      check(size, DType::bf16, DType::f32, {true, false, false, accumulate});
}

TEST_F(MatmulTest, SmallIntegersAreExact) {
  for (const DType dtype : dtypes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Matrix a = random_integers(600, 96, 2);
        const Matrix b = random_integers(96, 130, 1);
        Matmul op;
        op.transpose_a = transpose_a;
        op.transpose_b = transpose_b;
        op.a = place(transposed_if(transpose_a, a), dtype);
        op.b = place(transposed_if(transpose_b, b), dtype);
        op.c = empty(600, 130, DType::f32);
        run(op);
        EXPECT_EQ(read(op.c).values, product(a, b).values);
      }
}

TEST_F(MatmulTest, TilesGiveTheSameBits) {
  for (const DType dtype : dtypes)
    for (const bool transpose_a : {false, true})
      for (const bool accumulate : {false, true})
        for (const Case& size : {Case{70, 70, 40}, Case{513, 128, 700}, Case{600, 192, 40}}) {
          Matrix reference{0, 0};
          Matmul op = make(size, dtype, dtype, {transpose_a, false, true, accumulate}, reference);
          const Matrix before = read(op.c);
          hook_ = {};
          run(op);
          EXPECT_EQ(hook_.num_calls, 0);
          EXPECT_LE(relative_error(read(op.c), reference), tolerance(dtype));
          const auto whole = bytes(op.c);
          op.c = place(before, dtype);
          hook_.wants = true;
          run(op);
          const bool is_cut = size.n % 64 == 0;
          EXPECT_GE(hook_.num_calls, is_cut ? 2 : 0);
          EXPECT_EQ(bytes(op.c), whole) << size.m << "x" << size.k << "x" << size.n;
        }
}

TEST_F(MatmulTest, TilesOfColumnBlocksGiveTheSameBits) {
  for (const DType dtype : dtypes) {
    Matrix reference{0, 0};
    Matmul op = make({600, 100, 300}, dtype, dtype, {false, true, true, false, 11}, reference);
    run(op);
    const auto whole = bytes(op.c);
    hook_.wants = true;
    run(op);
    EXPECT_GT(hook_.num_calls, 0);
    EXPECT_EQ(bytes(op.c), whole);
    hook_ = {};
  }
}

TEST_F(MatmulTest, ReusesThePackedOperandOnlyWhileItIsThere) {
  const Matrix a = random(512, 64, DType::f32);
  const Matrix b = random(64, 96, DType::f32);
  Matmul op;
  op.a = place(a, DType::f32);
  op.b = place(b, DType::f32);
  op.c = empty(512, 96, DType::f32);
  run(op);
  const auto expected = bytes(op.c);

  op.reuse_b = true;
  const Matrix other = random(64, 96, DType::f32);
  std::memcpy(op.b.data, place(other, DType::f32).data, static_cast<std::size_t>(op.b.bytes()));
  run(op);
  EXPECT_EQ(bytes(op.c), expected) << "b was packed again";

  Matrix reference{0, 0};
  run(make({600, 50, 30}, DType::f32, DType::f32, {}, reference));
  run(op);
  EXPECT_LE(relative_error(read(op.c), product(a, other)), 1e-5) << "a stale b was used";
}

TEST_F(MatmulTest, ChunksOfTokensGiveTheSameBits) {
  for (const DType dtype : dtypes) {
    Matrix reference{0, 0};
    const Matmul whole = make({640, 192, 300}, dtype, dtype, {false, true, true}, reference);
    run(whole);
    for (const std::int64_t rows : {64, 128, 320}) {
      const Tensor c = empty(640, 192, dtype);
      for (std::int64_t first = 0; first < 640; first += rows) {
        Matmul chunk = whole;
        chunk.a = whole.a.row_block(first, rows);
        chunk.c = c.row_block(first, rows);
        chunk.reuse_b = first > 0;
        run(chunk);
      }
      EXPECT_EQ(bytes(c), bytes(whole.c)) << rows;
    }
  }
}

TEST_F(MatmulTest, ScratchIsWithinThePrediction) {
  for (const DType dtype : dtypes)
    for (const Case& size : {Case{600, 37, 70}, Case{512, 512, 256}, Case{20, 96, 33}})
      for (const bool transpose_a : {false, true}) {
        Arena arena{1 << 26};
        Kernels kernels{1, arena};
        Matrix reference{0, 0};
        const Matmul op = make(size, dtype, DType::f32, {transpose_a}, reference);
        kernels.run(op, hook_);
        EXPECT_LE(arena.peak(), std::max<std::int64_t>(64, workspace_bytes(op, 1)));
      }
}

TEST_F(MatmulTest, TwoThreadsAgreeWithReference) {
  Kernels two{2, arena_};
  for (const DType dtype : dtypes) {
    Matrix reference{0, 0};
    const Matmul op = make({600, 200, 130}, dtype, dtype, {true, false, true}, reference);
    two.run(op, hook_);
    EXPECT_LE(relative_error(read(op.c), reference), tolerance(dtype));
  }
}

/// Sends the thread that made it, while it lives, interrupts that say they are the same one.
class Interrupts {
 public:
  Interrupts()
      : sender_{[this, receiver = ::pthread_self()] {
          while (!stop_) {
            ::pthread_sigqueue(receiver, SIGINT, {.sival_int = 1});
            ::usleep(50);
          }
        }} {}
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts() {
    stop_ = true;
    sender_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread sender_;
};

/// oneDNN's sgemm points the stack pointer into the heap: a signal handled there destroys it.
TEST(Sgemm, SignalsDoNoHarm) {
  constexpr std::int64_t m = 64, n = 1024, k = 128;
  const std::vector<float> a(m * k, 1), b(k * n, 1);
  std::vector<float> c(m * n);
  const InterruptFlag flag;
  const Interrupts interrupts;
  for (int i = 0; i < 1000; ++i) {
    kernels::sgemm({m, n, k}, {a.data(), k}, {b.data(), n}, {c.data(), n});
    ASSERT_EQ(std::ranges::count(c, float{k}), m * n) << "pass " << i;
  }
  EXPECT_EQ(flag.exit_code(), 130);
}

}  // namespace
}  // namespace shardmark
