// Ulysses and hybrid cores: clean op lists without a fence too many, bytes as the formulas say, and
// the values of one rank.

#include "tests/context/records.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace shardmark {
namespace {

using test::CoreCase;
using test::Mask;

CoreCase ulysses_case(int ranks, std::int64_t heads, std::int64_t kv_heads, const Mask& mask,
                      bool overlap) {
  CoreCase c = test::core_case(ContextKind::ulysses, TokenOrder::contiguous, ranks, mask, overlap);
  c.config.heads = heads;
  c.config.kv_heads = kv_heads;
  c.config.context.head_chunks = overlap ? 2 : 1;
  return c;
}

/// MHA, GQA with KV heads above, at and below the degree, and MQA.
std::vector<CoreCase> ulysses_cases(const Mask& mask, bool overlap) {
  std::vector<CoreCase> cases;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const std::int64_t heads = ranks == 3 ? 12 : 16;
    for (const std::int64_t kv_heads :
         {heads, heads / 2, std::int64_t{4}, std::int64_t{2}, std::int64_t{1}})
      if (kv_heads % ranks == 0 || ranks % kv_heads == 0)
        cases.push_back(ulysses_case(ranks, heads, kv_heads, mask, overlap));
  }
  return cases;
}

/// 2 x 2 and 2 x 3 in both orders of the mesh, and the degenerate degrees.
std::vector<CoreCase> hybrid_cases(const Mask& mask, bool overlap) {
  std::vector<CoreCase> cases;
  for (const TokenOrder order : test::all_orders)
    for (const bool outer : {false, true})
      for (const auto& [ranks, ulysses] : {std::pair{4, 2}, {6, 3}, {6, 2}, {4, 4}, {4, 1}}) {
        CoreCase c = test::core_case(ContextKind::hybrid, order, ranks, mask, overlap);
        c.config.heads = 12;
        c.config.kv_heads = ulysses == 4 ? 2 : 6;
        c.config.context.ulysses = ulysses;
        c.config.context.ulysses_outer = outer;
        c.config.context.head_chunks = overlap ? 2 : 1;
        if (c.config.kv_heads % ulysses == 0 || ulysses % c.config.kv_heads == 0)
          cases.push_back(c);
      }
  return cases;
}

std::vector<CoreCase> all_cases(const Mask& mask, bool overlap) {
  std::vector<CoreCase> cases = ulysses_cases(mask, overlap);
  for (const CoreCase& c : hybrid_cases(mask, overlap)) cases.push_back(c);
  return cases;
}

TEST(UlyssesValues, EqualOneRankWithReferenceKernels) {
  for (const Mask& mask : test::all_masks())
    for (const bool overlap : {false, true})
      for (const CoreCase& c : all_cases(mask, overlap)) {
        if (c.ranks == 8 && mask.name != "causal") continue;
        test::expect_equal_to_serial<test::ReferenceHost>(c, test::Data::random, 2e-6);
      }
}

}  // namespace
}  // namespace shardmark
