#include "core/cuda/translate/bands.hpp"
#include "core/cuda/translate/translate.hpp"
#include "core/error.hpp"
#include "tests/cuda/evaluate.hpp"
#include "tests/cuda/pool.hpp"

#include <string>
#include <vector>

namespace shardmark::cuda {
namespace {

constexpr std::int64_t packed_starts[] = {0, 3, 4, 9}, three_starts[] = {0, 3, 9};

struct Case {
  std::string name;
  AttentionShape shape;
};

Places run(std::int64_t first, std::int64_t count, std::int64_t stride = 1) {
  return {{Places::Run{first, count, stride}, Places::Run{}}};
}
Places two_runs(std::int64_t first, std::int64_t second, std::int64_t count) {
  return {{Places::Run{first, count, 1}, Places::Run{second, count, 1}}};
}

/// What a ring, zigzag, stripes, windows and packed sequences make of an attention.
std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](const std::string& name, const AttentionShape& shape) {
    for (const bool causal : {true, false})
      for (const std::int64_t window : {0, 1, 3, 100}) {
        AttentionShape with = shape;
        with.causal = causal;
        with.window = window;
        list.push_back({message(name, causal ? " causal" : "", " window ", window), with});
      }
  };
  AttentionShape shape{.batch = 2, .seq = 7, .heads = 4, .kv_heads = 2, .head_dim = 8};
  add("one sequence", shape);
  shape.seq = 1;
  add("one token", shape);
  shape.seq = 6;
  const auto pair = [&](const Places& queries, const Places& keys) {
    AttentionShape s = shape;
    s.queries = queries;
    s.keys = keys;
    s.seq = queries.count();
    return s;
  };
  add("keys before", pair(run(6, 6), run(0, 6)));
  add("keys after", pair(run(0, 6), run(6, 6)));
  add("keys around", pair(run(3, 4), run(0, 12)));
  add("more queries than keys", pair(run(0, 9), run(2, 3)));
  add("zigzag, own keys", pair(two_runs(3, 12, 3), two_runs(3, 12, 3)));
  add("zigzag, another's keys", pair(two_runs(3, 12, 3), two_runs(0, 15, 3)));
  add("stripes, earlier keys", pair(run(2, 5, 3), run(0, 5, 3)));
  add("stripes, later keys", pair(run(0, 5, 3), run(2, 5, 3)));
  add("one query of a stripe", pair(run(7, 1, 3), run(0, 12)));
  shape.seq = 12;
  shape.starts = packed_starts;
  add("packed", shape);
  add("packed, keys before", pair(run(6, 6), run(0, 6)));
  add("packed stripes", pair(run(1, 6, 2), run(0, 6, 2)));
  shape.starts = three_starts;
  add("packed, the later piece first", pair(two_runs(6, 0, 6), two_runs(6, 0, 6)));
  return list;
}

/// Whether a query sees a key, by their places: the definition.
bool sees(const Visibility& v, std::int64_t query, std::int64_t key) {
  if (v.causal && key > query) return false;
  if (v.window > 0 && std::abs(query - key) >= v.window) return false;
  return start_of(v.starts, query) == start_of(v.starts, key);
}

TEST(Bands, HoldEveryVisiblePairOnce) {
  for (const Case& c : cases()) {
    const auto bands = bands_of(c.shape);
    ASSERT_TRUE(bands.has_value()) << c.name;
    const Places queries = c.shape.query_places(), keys = c.shape.key_places();
    std::vector<int> count(static_cast<std::size_t>(queries.count() * keys.count()), 0);
    for (const Band& band : *bands)
      for (std::int64_t i = 0; i < band.num_queries; ++i) {
        int seen = 0;
        for (std::int64_t j = 0; j < band.num_keys; ++j) {
          if (band.right_bound && j > i + *band.right_bound) continue;
          if (band.left_bound && j <= i - *band.left_bound) continue;
          const std::int64_t q = band.first_query + i, k = band.first_key + j;
          ++count[static_cast<std::size_t>(q * keys.count() + k)];
          ++seen;
        }
        EXPECT_GT(seen, 0) << c.name << ": query " << i << " of a band sees nothing";
      }
    for (std::int64_t q = 0; q < queries.count(); ++q)
      for (std::int64_t k = 0; k < keys.count(); ++k)
        EXPECT_EQ(count[static_cast<std::size_t>(q * keys.count() + k)],
                  sees(c.shape.visibility(), queries[q], keys[k]) ? 1 : 0)
            << c.name << ": query row " << q << ", key row " << k;
  }
}

TEST(Bands, BoundsAreThoseThatCudnnTakes) {
  for (const Case& c : cases()) {
    const std::vector<Band> bands = bands_of(c.shape).value();
    for (const Band& band : bands) {
      EXPECT_GE(band.right_bound.value_or(0), 0) << c.name;
      EXPECT_GE(band.left_bound.value_or(1), 1) << c.name;
    }
  }
}

TEST(Bands, OrdinaryMasksAreOneBand) {
  AttentionShape shape{.batch = 1, .seq = 64, .heads = 2, .kv_heads = 2, .head_dim = 8};
  EXPECT_EQ(*bands_of(shape), (std::vector<Band>{{0, 64, 0, 64, {}, 0}}));
  shape.window = 16;
  EXPECT_EQ(*bands_of(shape), (std::vector<Band>{{0, 64, 0, 64, 16, 0}}));
  shape.causal = false;
  shape.window = 0;
  EXPECT_EQ(*bands_of(shape), (std::vector<Band>{{0, 64, 0, 64, {}, {}}}));
}

TEST(Bands, DifferentSpacingIsABandOnlyIfAllOrNothingIsSeen) {
  AttentionShape shape{.batch = 1, .seq = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  shape.queries = run(20, 4, 3);
  shape.keys = run(0, 8, 2);
  EXPECT_EQ(*bands_of(shape), (std::vector<Band>{{0, 4, 0, 8, {}, {}}}));
  shape.keys = run(40, 8, 2);
  EXPECT_TRUE(bands_of(shape)->empty());
  shape.keys = run(16, 8, 2);
  EXPECT_FALSE(bands_of(shape).has_value());
}

/// Runs the op by its calls and compares with the reference. Parts are bf16 (relative 2^-9) before
/// they are merged, or added up to three times, and so is the o that the backward pass is given;
/// where terms cancel (the gradient of a softmax does), the error is that of the terms.
class AttentionTranslation : public ::testing::Test {
 protected:
  void compare(const Op& op, const std::string& what, Resources resources = {},
               double tolerance = 1.0 / 64) {
    const auto bytes = static_cast<std::size_t>(workspace_bytes(op, resources));
    std::vector<std::byte> memory(bytes + 2 * edge, std::byte{0x7B});
    auto* workspace = memory.data();
    workspace += (edge - reinterpret_cast<std::uintptr_t>(workspace) % edge) % edge;
    resources.workspace = workspace;
    const std::vector<std::byte> before = pool.snapshot();
    run_reference(op);
    const std::vector<std::byte> expected = pool.snapshot();
    pool.restore(before);
    const Translation translation = translate(op, resources);
    ASSERT_EQ(translation.unavailable, "") << what;
    host::run(translation);
    const std::vector<std::byte> result = pool.snapshot();
    expect_agreement(op, {pool, before, expected, result}, tolerance, what, 1);
    const auto is_untouched = [](std::byte b) { return b == std::byte{0x7B}; };
    EXPECT_TRUE(std::all_of(memory.data(), workspace, is_untouched) &&
                std::all_of(workspace + bytes, memory.data() + memory.size(), is_untouched))
        << what << ": more of the workspace was written than was asked for";
    pool.restore(before);
  }
  static constexpr std::size_t edge = 256;
  [[nodiscard]] Tensor q_like(const AttentionShape& s, DType dtype, std::int64_t gap = 0) {
    return pool.random({s.batch * s.seq, s.heads * s.head_dim}, dtype, gap);
  }
  [[nodiscard]] Tensor k_like(const AttentionShape& s, DType dtype, std::int64_t gap = 0) {
    return pool.random({s.batch * s.num_keys(), s.kv_heads * s.head_dim}, dtype, gap);
  }
  [[nodiscard]] Tensor lse_like(const AttentionShape& s) {
    return pool.random({s.batch, s.heads, s.seq}, DType::f32);
  }
  Pool pool;
};

TEST_F(AttentionTranslation, ForwardIsTheReferences) {
  for (const Case& c : cases())
    for (const std::int64_t gap : {0, 8}) {
      pool.clear();
      const Tensor q = q_like(c.shape, DType::bf16, gap), k = k_like(c.shape, DType::bf16, gap);
      const Tensor v = k_like(c.shape, DType::bf16, gap);
      compare(Attention{q, k, v, q_like(c.shape, DType::bf16, gap), lse_like(c.shape), c.shape},
              c.name);
      compare(Attention{q, k, v, q_like(c.shape, DType::f32), lse_like(c.shape), c.shape},
              c.name + " into f32");
      compare(Attention{q, k, v, q_like(c.shape, DType::f32), lse_like(c.shape), c.shape, true},
              c.name + " added to other keys'");
      if (HasFailure()) return;
    }
}

/// With o and lse of the very attention, so that probabilities are those of a softmax.
TEST_F(AttentionTranslation, BackwardIsTheReferences) {
  for (const Case& c : cases()) {
    pool.clear();
    const Tensor q = q_like(c.shape, DType::bf16), k = k_like(c.shape, DType::bf16);
    const Tensor v = k_like(c.shape, DType::bf16), o = q_like(c.shape, DType::bf16);
    const Tensor lse = lse_like(c.shape), d_o = q_like(c.shape, DType::bf16);
    run_reference(Attention{q, k, v, o, lse, c.shape});
    for (const bool accumulate : {false, true}) {
      const DType dtype = accumulate ? DType::f32 : DType::bf16;
      compare(
          AttentionBackward{q, k, v, o, lse, d_o, q_like(c.shape, dtype), k_like(c.shape, dtype),
                            k_like(c.shape, dtype), c.shape, accumulate},
          message(c.name, accumulate ? " added" : ""));
    }
    if (HasFailure()) return;
  }
}

/// cuDNN's backward pass wants log-sum-exp without gaps.
TEST_F(AttentionTranslation, SumsOfGraphsHaveNoGaps) {
  for (const Case& c : cases()) {
    pool.clear();
    const Tensor q = q_like(c.shape, DType::bf16), k = k_like(c.shape, DType::bf16);
    const Tensor lse = lse_like(c.shape);
    for (const Op& op : {Op{Attention{q, k, k, q, lse, c.shape}},
                         Op{AttentionBackward{q, k, k, q, lse, q, q, k, k, c.shape}}})
      for (const Call& call : translate(op, {}).calls)
        if (const auto* graph = std::get_if<FusedAttention>(&call)) {
          EXPECT_EQ(graph->stats.strides[1], graph->stats.dims[2]) << c.name;
          EXPECT_EQ(graph->stats.strides[0], graph->stats.dims[1] * graph->stats.dims[2]) << c.name;
        }
  }
}

TEST_F(AttentionTranslation, OrdinaryAttentionNeedsNoWorkspace) {
  const AttentionShape shape{.batch = 2, .seq = 8, .heads = 4, .kv_heads = 2, .head_dim = 16};
  const Tensor q = q_like(shape, DType::bf16), k = k_like(shape, DType::bf16);
  const Attention op{q, k, k, q_like(shape, DType::bf16), lse_like(shape), shape};
  EXPECT_EQ(workspace_bytes(op), 0);
  EXPECT_EQ(translate(op, {}).calls.size(), 1U);
}

TEST_F(AttentionTranslation, WhatCudnnLacksIsMatmulsAndSaid) {
  const auto reason = [&](AttentionShape shape, DType dtype, std::int64_t gap = 0) {
    const Tensor q = q_like(shape, dtype, gap), k = k_like(shape, dtype, gap);
    const Attention op{q, k, k, q, lse_like(shape), shape};
    EXPECT_TRUE(std::holds_alternative<MatmulCall>(translate(op, {}).calls.at(0)));
    return why_not_fused(op);
  };
  AttentionShape shape{.batch = 1, .seq = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  EXPECT_NE(reason(shape, DType::f32).find("16-bit types"), std::string::npos);
  EXPECT_NE(reason(shape, DType::bf16, 3).find("16 bytes"), std::string::npos);
  shape.head_dim = 12;
  EXPECT_NE(reason(shape, DType::bf16).find("12"), std::string::npos);
  shape.head_dim = 8;
  const Tensor q = q_like(shape, DType::f16), k = k_like(shape, DType::f16);
  EXPECT_EQ(why_not_fused(Attention{q, k, k, q, lse_like(shape), shape}), "");
  shape.queries = run(20, 4, 3);
  shape.keys = run(20, 4, 2);
  EXPECT_NE(reason(shape, DType::bf16).find("spaced"), std::string::npos);
}

TEST_F(AttentionTranslation, MixedDtypesAreUnavailable) {
  const AttentionShape shape{.batch = 1, .seq = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const Tensor q = q_like(shape, DType::bf16), k = k_like(shape, DType::f32);
  const Translation translation = translate(Attention{q, k, k, q, lse_like(shape), shape}, {});
  EXPECT_TRUE(translation.calls.empty());
  EXPECT_EQ(translation.unavailable, "attention of bf16 with a tensor of f32");
}

/// Places that no band has, besides all that bands have.
std::vector<Case> matmul_cases() {
  std::vector<Case> list = cases();
  AttentionShape shape{.batch = 2, .seq = 6, .heads = 6, .kv_heads = 2, .head_dim = 12};
  shape.queries = run(3, 6, 3);
  shape.keys = {{Places::Run{0, 7, 2}, Places::Run{15, 5, 1}}};
  list.push_back({"spaced differently", shape});
  shape.window = 4;
  list.push_back({"spaced differently, window 4", shape});
  shape.starts = packed_starts;
  list.push_back({"spaced differently, packed, window 4", shape});
  const AttentionShape longer{.batch = 1, .seq = 40, .heads = 4, .kv_heads = 2, .head_dim = 8};
  list.push_back({"more rows than the workspace's alignment hides", longer});
  return list;
}

/// All at once, and in tiles of a row or a few of one head.
constexpr std::int64_t score_limits[] = {1, 600, std::int64_t{256} << 20};

double tolerance_of(DType dtype) {
  if (dtype == DType::f32) return 2e-5;
  return dtype == DType::bf16 ? 1.0 / 64 : 1.0 / 256;
}

TEST_F(AttentionTranslation, ForwardByMatmulsIsTheReferences) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : matmul_cases())
      for (const std::int64_t limit : score_limits) {
        pool.clear();
        const std::int64_t gap = limit == 600 ? 3 : 0;
        const Resources resources{.fused_attention = false, .most_score_bytes = limit};
        const std::string what = message(c.name, " ", name_of(dtype), " in ", limit, " bytes");
        const double tolerance = tolerance_of(dtype);
        const Tensor q = q_like(c.shape, dtype, gap), k = k_like(c.shape, dtype, gap);
        const Tensor v = k_like(c.shape, dtype, gap), lse = lse_like(c.shape);
        const Tensor o = q_like(c.shape, dtype), sum = q_like(c.shape, DType::f32, gap);
        compare(Attention{q, k, v, o, lse, c.shape}, what, resources, tolerance);
        compare(Attention{q, k, v, sum, lse, c.shape}, what + " into f32", resources, tolerance);
        compare(Attention{q, k, v, sum, lse, c.shape, true}, what + " added", resources, tolerance);
        if (HasFailure()) return;
      }
}

TEST_F(AttentionTranslation, BackwardByMatmulsIsTheReferences) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : matmul_cases())
      for (const std::int64_t limit : score_limits) {
        pool.clear();
        const std::int64_t gap = limit == 600 ? 3 : 0;
        const Resources resources{.fused_attention = false, .most_score_bytes = limit};
        const Tensor q = q_like(c.shape, dtype, gap), k = k_like(c.shape, dtype);
        const Tensor v = k_like(c.shape, dtype), o = q_like(c.shape, dtype);
        const Tensor lse = lse_like(c.shape), d_o = q_like(c.shape, dtype, gap);
        run_reference(Attention{q, k, v, o, lse, c.shape});
        for (const bool accumulate : {false, true})
          for (const DType sums : {dtype, DType::f32}) {
            if (accumulate && sums != DType::f32) continue;
            compare(AttentionBackward{q, k, v, o, lse, d_o, q_like(c.shape, sums, gap),
                                      k_like(c.shape, sums), k_like(c.shape, sums, gap), c.shape,
                                      accumulate},
                    message(c.name, " ", name_of(dtype), " into ", name_of(sums), " in ", limit,
                            " bytes", accumulate ? " added" : ""),
                    resources, tolerance_of(dtype));
          }
        if (HasFailure()) return;
      }
}

/// A ring's steps: three ranks' keys one after another are all keys at once, forward and backward.
TEST_F(AttentionTranslation, ThreePartsByMatmulsAreTheWhole) {
  for (const bool causal : {true, false}) {
    pool.clear();
    AttentionShape whole{.batch = 2, .seq = 12, .heads = 4, .kv_heads = 2, .head_dim = 8};
    whole.causal = causal;
    whole.batch = 1;
    const Resources resources{.fused_attention = false, .most_score_bytes = 600};
    const Tensor q = q_like(whole, DType::f32), k = k_like(whole, DType::f32);
    const Tensor v = k_like(whole, DType::f32), d_o = q_like(whole, DType::f32);
    const Tensor o = q_like(whole, DType::f32), lse = lse_like(whole);
    const Tensor dq = q_like(whole, DType::f32), dk = k_like(whole, DType::f32);
    const Tensor dv = k_like(whole, DType::f32);
    const Tensor o_sum = q_like(whole, DType::f32), lse_sum = lse_like(whole);
    const Tensor dq_sum = q_like(whole, DType::f32), dk_sum = k_like(whole, DType::f32);
    const Tensor dv_sum = k_like(whole, DType::f32);
    run_reference(Attention{q, k, v, o, lse, whole});
    run_reference(AttentionBackward{q, k, v, o, lse, d_o, dq, dk, dv, whole});
    std::vector<std::byte> memory(std::size_t{1} << 16);
    const auto run_op = [&](const Op& op) {
      Resources with = resources;
      with.workspace = memory.data();
      ASSERT_LE(workspace_bytes(op, with), static_cast<std::int64_t>(memory.size()));
      host::run(translate(op, with));
    };
    const auto part_of = [&](std::int64_t first) {
      AttentionShape part = whole;
      part.queries = run(0, 12);
      part.keys = run(first, 4);
      return part;
    };
    for (const std::int64_t first : {0, 4, 8})
      run_op(Attention{q, k.row_block(first, 4), v.row_block(first, 4), o_sum, lse_sum,
                       part_of(first), first > 0});
    for (const std::int64_t first : {0, 4, 8}) {
      if (first == 0) run_op(Fill{dk_sum, 0}), run_op(Fill{dv_sum, 0});
      if (first == 0) run_op(Fill{dq_sum, 0});
      run_op(AttentionBackward{q, k.row_block(first, 4), v.row_block(first, 4), o_sum, lse_sum, d_o,
                               dq_sum, dk_sum.row_block(first, 4), dv_sum.row_block(first, 4),
                               part_of(first), true});
    }
    const auto expect_equal = [](const Tensor& result, const Tensor& expected, const char* what) {
      for (std::int64_t i = 0; i < expected.numel(); ++i)
        EXPECT_NEAR(result.as<float>()[i], expected.as<float>()[i], 2e-5) << what << ' ' << i;
    };
    expect_equal(o_sum, o, "o");
    expect_equal(lse_sum, lse, "lse");
    expect_equal(dq_sum, dq, "dq");
    expect_equal(dk_sum, dk, "dk");
    expect_equal(dv_sum, dv, "dv");
  }
}

/// Of a long sequence scores alone would be 64 GiB.
TEST_F(AttentionTranslation, ScoresAreBounded) {
  const AttentionShape shape{
      .batch = 1, .seq = 1 << 15, .heads = 16, .kv_heads = 4, .head_dim = 64};
  const auto like = [&](std::int64_t heads) {
    return Tensor{1, DType::bf16, {shape.seq, heads * 64}, 0, heads * 64, nullptr};
  };
  const Tensor q = like(16), k = like(4);
  const Tensor lse{1, DType::f32, {1, 16, shape.seq}, 0, shape.seq, nullptr};
  const Resources resources{.fused_attention = false};
  const std::int64_t limit = std::int64_t{256} << 20, sums = 2 * shape.seq * 4 * 64 * 4;
  EXPECT_LE(workspace_bytes(Attention{q, k, k, q, lse, shape}, resources), limit);
  EXPECT_GT(workspace_bytes(Attention{q, k, k, q, lse, shape}, resources), limit / 2);
  const AttentionBackward backward{q, k, k, q, lse, q, q, k, k, shape};
  EXPECT_LE(workspace_bytes(backward, resources), limit + sums + (1 << 20));
  EXPECT_GT(workspace_bytes(backward, resources), limit / 2);
}

}  // namespace
}  // namespace shardmark::cuda
