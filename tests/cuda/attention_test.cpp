#include "core/cuda/translate/bands.hpp"
#include "core/cuda/translate/translate.hpp"
#include "core/error.hpp"
#include "tests/cuda/evaluate.hpp"
#include "tests/cuda/pool.hpp"

#include <string>
#include <vector>

namespace shardmark::cuda {
namespace {

constexpr std::int64_t packed_starts[] = {0, 3, 4, 9};

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
  void compare(const Op& op, const std::string& what) {
    std::vector<std::byte> memory(static_cast<std::size_t>(workspace_bytes(op)) + 256);
    auto* workspace = memory.data();
    workspace += (256 - reinterpret_cast<std::uintptr_t>(workspace) % 256) % 256;
    const std::vector<std::byte> before = pool.snapshot();
    run_reference(op);
    const std::vector<std::byte> expected = pool.snapshot();
    pool.restore(before);
    const Translation translation = translate(op, {workspace});
    ASSERT_EQ(translation.unavailable, "") << what;
    host::run(translation);
    const std::vector<std::byte> result = pool.snapshot();
    expect_agreement(op, {pool, before, expected, result}, 1.0 / 64, what, 1);
    pool.restore(before);
  }
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

TEST_F(AttentionTranslation, OrdinaryAttentionNeedsNoWorkspace) {
  const AttentionShape shape{.batch = 2, .seq = 8, .heads = 4, .kv_heads = 2, .head_dim = 16};
  const Tensor q = q_like(shape, DType::bf16), k = k_like(shape, DType::bf16);
  const Attention op{q, k, k, q_like(shape, DType::bf16), lse_like(shape), shape};
  EXPECT_EQ(workspace_bytes(op), 0);
  EXPECT_EQ(translate(op, {}).calls.size(), 1U);
}

TEST_F(AttentionTranslation, WhatCudnnLacksIsSaid) {
  const auto reason = [&](AttentionShape shape, DType dtype, std::int64_t gap = 0) {
    const Tensor q = q_like(shape, dtype, gap), k = k_like(shape, dtype, gap);
    const Translation translation = translate(Attention{q, k, k, q, lse_like(shape), shape}, {});
    EXPECT_TRUE(translation.calls.empty());
    return translation.unavailable;
  };
  AttentionShape shape{.batch = 1, .seq = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  EXPECT_NE(reason(shape, DType::f32).find("bf16 works"), std::string::npos);
  EXPECT_NE(reason(shape, DType::bf16, 3).find("16 bytes"), std::string::npos);
  shape.head_dim = 12;
  EXPECT_NE(reason(shape, DType::bf16).find("12"), std::string::npos);
  shape.head_dim = 8;
  shape.queries = run(20, 4, 3);
  shape.keys = run(20, 4, 2);
  EXPECT_NE(reason(shape, DType::bf16).find("spaced"), std::string::npos);
}

}  // namespace
}  // namespace shardmark::cuda
