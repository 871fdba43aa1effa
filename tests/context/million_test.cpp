// A million tokens on 256 ranks, every kind and order: the op lists of a whole step are recorded
// and checked in seconds, and move the bytes of the formulas.

#include "tests/context/records.hpp"

#include <chrono>

namespace shardmark {
namespace {

using test::all_masks;
using test::all_orders;
using test::CoreCase;
using test::Mask;
using test::RecordedSteps;

constexpr int ranks = 256;
constexpr double share = (ranks - 1.0) / ranks;
constexpr double seq = 1 << 20;
constexpr double width = 256 * 64;  // MHA: as many columns of k as of q
constexpr int ulysses = 8;          // of the hybrid

struct Bytes {
  double forward{0}, backward{0};
};
/// Per rank in bf16, gradients of a ring's and a gather's k and v in f32. METRICS 1.3.
Bytes formula(ContextKind kind) {
  constexpr double kv = 2 * seq * width * 2, kv_gradients = 2 * seq * width * 4;
  constexpr double tokens = seq / ranks, rings = 1.0 * ranks / ulysses;
  switch (kind) {
    case ContextKind::ring:
      return {share * kv, share * (kv + kv_gradients)};
    case ContextKind::all_gather:
      return {share * kv, share * kv_gradients};
    case ContextKind::ulysses:
      return {share * tokens * 4 * width * 2, share * tokens * 4 * width * 2};
    case ContextKind::hybrid: {
      const double heads = (ulysses - 1.0) / ulysses * tokens * 4 * width * 2;
      const double passed = (rings - 1) / ranks;
      return {heads + passed * kv, heads + passed * (kv + kv_gradients)};
    }
  }
  return {};
}

CoreCase case_of(ContextKind kind, TokenOrder order, const Mask& mask) {
  CoreCase c = test::core_case(kind, order, ranks, mask, true);
  c.config.batch = 1;
  c.config.seq = static_cast<std::int64_t>(seq);
  c.config.heads = c.config.kv_heads = 256;
  c.config.head_dim = 64;
  c.config.dtype = DType::bf16;
  c.config.context.ulysses = ulysses;
  return c;
}

/// Seconds to record and check one step.
double check(const CoreCase& c) {
  const auto begin = std::chrono::steady_clock::now();
  const RecordedSteps steps{c};
  EXPECT_THAT(check_matching(steps.ops), testing::IsEmpty()) << c;
  EXPECT_THAT(find_deadlock(steps.ops), testing::IsEmpty()) << c;
  for (const std::vector<OpRecord>& ops : steps.ops)
    EXPECT_THAT(find_races(ops), testing::IsEmpty()) << c;
  const std::chrono::duration<double> spent_s = std::chrono::steady_clock::now() - begin;
  const Bytes bytes = formula(c.config.context.kind);
  for (int rank = 0; rank < ranks && c.mask == "full"; ++rank) {
    EXPECT_NEAR(steps.bytes_wire(rank, "fwd"), bytes.forward, 0.5) << c;
    EXPECT_NEAR(steps.bytes_wire(rank, "bwd"), bytes.backward, 0.5) << c;
  }
  return spent_s.count();
}

class MillionTokens : public testing::TestWithParam<ContextKind> {};

TEST_P(MillionTokens, AreCheckedInLessThanThirtySeconds) {
  double spent_s = 0;
  for (const TokenOrder order : all_orders)
    for (const std::size_t mask : {0U, 1U}) {  // full and causal
      if (GetParam() == ContextKind::ulysses && order != TokenOrder::contiguous) continue;
      spent_s += check(case_of(GetParam(), order, all_masks()[mask]));
    }
  RecordProperty("seconds", std::to_string(spent_s));
  EXPECT_LT(spent_s, 30);
}

std::string name_of_kind(const testing::TestParamInfo<ContextKind>& kind) {
  return kind.param == ContextKind::all_gather ? "all_gather" : std::string{name_of(kind.param)};
}
INSTANTIATE_TEST_SUITE_P(Kinds, MillionTokens,
                         testing::Values(ContextKind::ring, ContextKind::all_gather,
                                         ContextKind::ulysses, ContextKind::hybrid),
                         name_of_kind);

}  // namespace
}  // namespace shardmark
