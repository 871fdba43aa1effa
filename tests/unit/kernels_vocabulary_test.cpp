#include "core/error.hpp"
#include "tests/unit/kernels_fixture.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using VocabularyTest = KernelTest;

const std::vector<std::int32_t> ids{3, 12, 7, 3, 19, 0, 8, 3};
constexpr std::int64_t first_row = 5, num_rows = 9, cols = 37;

TEST_F(VocabularyTest, EmbeddingLooksUpItsOwnRows) {
  for (const DType dtype : dtypes)
    for (const bool accumulate : {false, true}) {
      const Matrix table = random(num_rows, cols, dtype);
      const Matrix before = random(8, cols, dtype);
      const Embedding op{place_ids(ids), place(table, dtype, 3), place(before, dtype, 3), first_row,
                         accumulate};
      run(op);
      Matrix reference = accumulate ? before : Matrix{8, cols};
      for (std::int64_t t = 0; t < 8; ++t) {
        const std::int64_t local = ids[static_cast<std::size_t>(t)] - first_row;
        if (local < 0 || local >= num_rows) continue;
        for (std::int64_t c = 0; c < cols; ++c)
          reference(t, c) = rounded(reference(t, c) + table(local, c), dtype);
      }
      EXPECT_EQ(read(op.y).values, reference.values);
      EXPECT_TRUE(gap_untouched(op.y));
    }
}

TEST_F(VocabularyTest, EmbeddingBackwardSumsTokens) {
  for (const DType dtype : dtypes) {
    const Matrix dy = random(8, 150, dtype);
    Matrix reference{num_rows, 150};
    for (std::int64_t t = 0; t < 8; ++t) {
      const std::int64_t local = ids[static_cast<std::size_t>(t)] - 0;
      if (local >= num_rows) continue;
      for (std::int64_t c = 0; c < 150; ++c) reference(local, c) += dy(t, c);
    }
    Kernels two{2, arena_};
    const EmbeddingBackward op{place_ids(ids), place(dy, dtype, 3),
                               empty(num_rows, 150, DType::f32), 0};
    run(op);
    EXPECT_LE(relative_error(read(op.dtable), reference), 1e-6);
    const EmbeddingBackward other{op.ids, op.dy, empty(num_rows, 150, DType::f32), 0};
    two.run(other, hook_);
    EXPECT_EQ(bytes(other.dtable), bytes(op.dtable));
  }
}

/// Rows of ids that nobody has keep what they hold.
TEST_F(VocabularyTest, EmbeddingBackwardAddsToWhatIsThere) {
  for (const DType dtype : dtypes) {
    const Matrix dy = random(8, 150, dtype);
    const Matrix before = random(num_rows, 150, DType::f32);
    Matrix reference = before;
    for (std::int64_t t = 0; t < 8; ++t) {
      const std::int64_t local = ids[static_cast<std::size_t>(t)] - first_row;
      if (local < 0 || local >= num_rows) continue;
      for (std::int64_t c = 0; c < 150; ++c) reference(local, c) += dy(t, c);
    }
    EmbeddingBackward op{place_ids(ids), place(dy, dtype, 3), place(before, DType::f32), first_row,
                         true};
    run(op);
    EXPECT_LE(relative_error(read(op.dtable), reference), 1e-6);
    for (std::int64_t c = 0; c < 150; ++c) EXPECT_EQ(read(op.dtable)(0, c), before(0, c)) << c;
    const auto expected = bytes(op.dtable);
    op.dtable = place(before, DType::f32);
    Kernels two{2, arena_};
    two.run(op, hook_);
    EXPECT_EQ(bytes(op.dtable), expected) << "two threads";
  }
}

/// Per-token loss of whole logits, from the definition.
double reference_loss(const Matrix& logits, std::int64_t token, std::int64_t target) {
  double total = 0;
  for (std::int64_t c = 0; c < logits.cols; ++c) total += std::exp(logits(token, c));
  return std::log(total) - logits(token, target);
}

class CrossEntropyTest : public KernelTest {
 protected:
  /// Runs the sums of one shard of `logits` (columns [first, first + count)).
  CrossEntropySum shard(const Tensor& logits, const Tensor& targets, const Tensor& maximum,
                        std::int64_t first, std::int64_t count) {
    const CrossEntropySum op{logits.column_block(first, count), targets, maximum,
                             empty(2, logits.rows(), DType::f32), first};
    run(op);
    return op;
  }
};

TEST_F(CrossEntropyTest, TwoShardsGiveTheLossAndItsGradient) {
  constexpr std::int64_t tokens = 8, vocabulary = 61, split = 29;
  const std::vector<std::int32_t> targets{0, 60, 28, 29, 5, 44, 17, 3};
  constexpr float scale = 0.125F;
  for (const DType dtype : dtypes) {
    Matrix logits = random(tokens, vocabulary, dtype, 3);
    const Tensor whole = place(logits, dtype);
    const Tensor target_ids = place_ids(targets);
    const Tensor maximum = empty(1, tokens, DType::f32);
    run(RowMax{whole, maximum});
    for (std::int64_t t = 0; t < tokens; ++t) {
      double most = -1e30;
      for (std::int64_t c = 0; c < vocabulary; ++c) most = std::max(most, logits(t, c));
      EXPECT_EQ(read(maximum)(0, t), most);
    }
    const auto left = shard(whole, target_ids, maximum, 0, split);
    const auto right = shard(whole, target_ids, maximum, split, vocabulary - split);
    const Tensor partials = empty(2, tokens, DType::f32);
    run(Add{left.partials, right.partials, partials});
    const Tensor loss = empty(1, tokens, DType::f32);
    run(CrossEntropyLoss{maximum, partials, loss});

    const Tensor gradient = empty(tokens, vocabulary, dtype);
    for (const CrossEntropySum& part : {left, right})
      run(CrossEntropyBackward{part.logits, target_ids, maximum, partials,
                               gradient.column_block(part.first_column, part.logits.cols()),
                               part.first_column, scale});
    const auto total_loss = [&] {
      double total = 0;
      for (std::int64_t t = 0; t < tokens; ++t)
        total += reference_loss(logits, t, targets[static_cast<std::size_t>(t)]);
      return total * scale;
    };
    for (std::int64_t t = 0; t < tokens; ++t)
      EXPECT_NEAR(read(loss)(0, t), reference_loss(logits, t, targets[static_cast<std::size_t>(t)]),
                  1e-5);
    EXPECT_LE(relative_error(read(gradient), numeric_gradient(logits, total_loss)),
              tolerance(dtype));
  }
}

TEST_F(CrossEntropyTest, GradientMayReplaceTheLogits) {
  const Tensor logits = place(random(5, 37, DType::f32), DType::f32, 2);
  const Tensor targets = place_ids({1, 2, 3, 4, 5});
  const Tensor maximum = empty(1, 5, DType::f32);
  run(RowMax{logits, maximum});
  const auto sums = shard(logits, targets, maximum, 0, 37);
  CrossEntropyBackward op{logits, targets, maximum, sums.partials, empty(5, 37, DType::f32), 0, 1};
  run(op);
  const auto expected = bytes(op.dlogits);
  op.dlogits = logits;
  run(op);
  EXPECT_EQ(bytes(logits), expected);
  EXPECT_TRUE(gap_untouched(logits));
}

TEST_F(CrossEntropyTest, WideGapsAreExact) {
  Matrix logits{1, 37};
  logits(0, 11) = 128;
  const Tensor placed = place(logits, DType::f32);
  const Tensor targets = place_ids({11});
  const Tensor maximum = empty(1, 1, DType::f32);
  run(RowMax{placed, maximum});
  const auto sums = shard(placed, targets, maximum, 0, 37);
  const Tensor loss = empty(1, 1, DType::f32);
  run(CrossEntropyLoss{maximum, sums.partials, loss});
  EXPECT_EQ(read(loss)(0, 0), 0);
  run(CrossEntropyBackward{placed, targets, maximum, sums.partials, placed, 0, 1});
  EXPECT_EQ(read(placed).values, std::vector<double>(37, 0));
}

TEST_F(VocabularyTest, CommunicationIsRefused) {
  const Tensor x = empty(2, 2, DType::f32);
  for (const Op& op : {Op{AllReduce{x, Group{}}}, Op{AllGather{x, x, Group{}}},
                       Op{ReduceScatter{x, x, Group{}}}, Op{Signal{}}, Op{Await{}}})
    EXPECT_THROW(run(op), Error);
}

}  // namespace
}  // namespace shardmark
