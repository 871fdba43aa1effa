#include "core/cuda/translate/translate.hpp"

#include "core/error.hpp"
#include "tests/cuda/compare.hpp"
#include "tests/cuda/evaluate.hpp"
#include "tests/cuda/examples.hpp"

#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace shardmark::cuda {
namespace {

void compare_on_all_layouts(const MakeOps& make_ops) {
  Pool pool;
  compare_with_reference(pool, make_ops, [](const Translation& t) { host::run(t); });
}

TEST(Translate, MatmulsAreTheReferences) { compare_on_all_layouts(matmul_ops); }
TEST(Translate, DenseAndElementwiseOpsAreTheReferences) { compare_on_all_layouts(dense_ops); }
TEST(Translate, NormsAreTheReferences) { compare_on_all_layouts(norm_ops); }
TEST(Translate, VocabularyOpsAreTheReferences) { compare_on_all_layouts(vocabulary_ops); }
TEST(Translate, RotationsAreTheReferences) { compare_on_all_layouts(rope_ops); }
TEST(Translate, ReductionsOfEveryDtypeAreTheReferences) { compare_on_all_layouts(reduction_ops); }

/// A compute op that no example has would not be compared with anything. (Attention is in
/// attention_test.cpp, communication in collectives_test.cpp.)
TEST(Translate, EveryComputeOpHasAnExample) {
  Pool pool;
  std::set<std::size_t> seen{Op{Attention{}}.index(), Op{AttentionBackward{}}.index()};
  for (const MakeOps& make_ops : all_examples()) {
    pool.clear();
    for (const Op& op : make_ops(pool, {DType::f32, 2, 16})) seen.insert(op.index());
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<ComputeOp>);
}

/// Nor would a dtype: all ops but those of losses, which are f32, have one in each that kernels
/// know.
TEST(Translate, EveryComputeOpHasAnExampleOfEveryDtype) {
  Pool pool;
  std::map<std::string_view, std::set<DType>> seen;
  for (const MakeOps& make_ops : all_examples())
    for (const Layout& layout : layouts()) {
      if (layout.rows != 5) continue;
      pool.clear();
      for (const Op& op : make_ops(pool, layout)) {
        const Touches touched = touches(op);
        for (const std::vector<Tensor>& tensors : {touched.reads, touched.writes})
          for (const Tensor& tensor : tensors) seen[name_of(op)].insert(tensor.dtype);
      }
    }
  for (const auto& [name, dtypes] : seen) {
    if (name == name_of(Op{CrossEntropyLoss{}})) continue;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      EXPECT_TRUE(dtypes.contains(dtype)) << name << " of " << name_of(dtype);
  }
}

TEST(Translate, FencesAreEvents) {
  const Translation signal = translate(Signal{Fence{7}}, {}),
                    await = translate(Await{Fence{8}}, {});
  ASSERT_EQ(signal.calls.size(), 1U);
  ASSERT_EQ(await.calls.size(), 1U);
  EXPECT_EQ(std::get<EventRecord>(signal.calls[0]).fence.id, 7U);
  EXPECT_EQ(std::get<EventWait>(await.calls[0]).fence.id, 8U);
}

TEST(Translate, MatmulFacts) {
  Pool pool;
  const Tensor a = pool.integers({4, 32}, DType::bf16), b = pool.integers({32, 24}, DType::bf16);
  const Tensor c = pool.integers({4, 24}, DType::bf16), bias = pool.integers({24}, DType::bf16);
  const auto only = [](const Op& op, const Resources& resources = {}) {
    return std::get<MatmulCall>(translate(op, resources).calls.at(0));
  };
  const MatmulCall call = only(Matmul{a, b, c, bias});
  EXPECT_EQ(call.a.data, b.data) << "row-major operands change places";
  EXPECT_EQ(call.d.rows, 24);
  EXPECT_EQ(call.d.leading_dimension, 24);
  EXPECT_EQ(call.alignment_bytes, 16);
  EXPECT_EQ(call.bias, bias.data);
  EXPECT_FALSE(only(Matmul{a, b, c, bias}, {.allow_tf32 = true}).fast_tf32) << "bf16 is not f32";

  const Tensor wide_c = pool.integers({4, 24}, DType::f32);
  const Translation unfused = translate(Matmul{a, b, wide_c, bias}, {});
  EXPECT_EQ(std::get<MatmulCall>(unfused.calls.at(0)).bias, nullptr)
      << "a bias of another dtype than the result's is no epilogue";
  EXPECT_EQ(unfused.calls.size(), 2U);

  const Tensor shifted = pool.integers({4, 32}, DType::bf16, 3, 0, 1);
  EXPECT_EQ(only(Matmul{shifted, b, c}).alignment_bytes, 2);
  const Tensor apart = pool.integers({4, 32}, DType::bf16, 3, 4);
  EXPECT_EQ(only(Matmul{apart, b, c}).alignment_bytes, 8);
}

TEST(Translate, AccessesAreWideWhereTheyCanBe) {
  Pool pool;
  const auto width = [](const Op& op) {
    return std::get<KernelCall>(translate(op, {}).calls.at(0)).launch.width;
  };
  const auto gelu = [&](std::int64_t cols, std::int64_t gap, std::int64_t shift) {
    const Tensor x = pool.random({3, cols}, DType::bf16, gap, shift);
    return width(Gelu{x, x});
  };
  EXPECT_EQ(gelu(64, 0, 0), wide);
  EXPECT_EQ(gelu(64, 8, 0), wide);
  EXPECT_EQ(gelu(37, 0, 0), wide) << "contiguous rows are one long row";
  EXPECT_EQ(gelu(37, 4, 0), 1);
  EXPECT_EQ(gelu(64, 0, 1), 1);
  EXPECT_EQ(gelu(1, 0, 0), 1);
}

/// A program's ops are translated again and again: from the second time on nothing is allocated.
TEST(Translate, MemoryOfCallsIsUsedAgain) {
  Pool pool;
  Translation translation;
  const Tensor x = pool.random({8, 64}, DType::bf16), w = pool.random({64, 64}, DType::bf16);
  const Tensor y = pool.random({8, 64}, DType::bf16), bias = pool.random({64}, DType::bf16);
  const Tensor sum = pool.random({8, 64}, DType::f32);
  const std::vector<Op> ops{Matmul{x, w, sum, bias}, Gelu{x, y}, Copy{x, sum}, Fill{y, 0}};
  for (const Op& op : ops) translate(op, {}, translation);
  const Call* const calls = translation.calls.data();
  const std::size_t capacity = translation.calls.capacity();
  for (const Op& op : ops) {
    translate(op, {}, translation);
    EXPECT_EQ(translation.calls.size(), translate(op, {}).calls.size()) << name_of(op);
    EXPECT_EQ(translation.calls.data(), calls) << name_of(op);
  }
  EXPECT_EQ(translation.calls.capacity(), capacity);
  translation.unavailable = "of the op before";
  translate(Gelu{x, y}, {}, translation);
  EXPECT_EQ(translation.unavailable, "");
}

TEST(Translate, NothingToDoIsNoCall) {
  Pool pool;
  const Tensor none = pool.empty({0, 16}, DType::f32), vector = pool.empty({16}, DType::f32);
  for (const Op& op : {Op{Add{none, none, none}}, Op{Copy{none, none}}, Op{Fill{none, 0}},
                       Op{Gelu{none, none}}, Op{AddBias{none, vector, none}}})
    EXPECT_TRUE(translate(op, {}).calls.empty()) << name_of(op);
}

}  // namespace
}  // namespace shardmark::cuda
