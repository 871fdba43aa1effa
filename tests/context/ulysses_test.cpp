// Ulysses and hybrid cores: clean op lists without a fence too many, bytes as the formulas say, and
// the values of one rank.

#include "tests/context/records.hpp"
#include "tests/context/serial.hpp"

#include <algorithm>

namespace shardmark {
namespace {

using test::all_masks;
using test::CoreCase;
using test::CpuHost;
using test::Data;
using test::Mask;
using test::RecordedSteps;
using test::ReferenceHost;

const std::vector<int> all_ranks{1, 2, 3, 4, 8};

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
        // Without a second dimension there is one order of the mesh, and without a ring one of
        // tokens.
        if (outer && (ulysses == 1 || ulysses == ranks)) continue;
        if (order != TokenOrder::zigzag && ulysses == ranks) continue;
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

TEST(Ulysses, IsFreeOfRacesMatchedAndFinishes) {
  for (const Mask& mask : all_masks())
    for (const bool overlap : {false, true})
      for (const CoreCase& c : all_cases(mask, overlap)) test::expect_clean(c);
}

TEST(Ulysses, ComputesEveryVisiblePairOnce) {
  for (const Mask& mask : all_masks())
    for (const CoreCase& c : all_cases(mask, true)) test::expect_flops_of_the_whole(c);
}

/// Heads in one chunk, in two with KV heads of their own, and in two that share one.
TEST(Ulysses, EveryFenceIsNeeded) {
  int num_deleted = 0;
  for (const int chunks : {1, 2, 4})
    for (const CoreCase& c : ulysses_cases(all_masks().front(), true)) {
      if (c.ranks == 1 || c.ranks == 8) continue;
      CoreCase chunked = c;
      chunked.config.context.head_chunks = chunks;
      num_deleted += test::expect_every_fence_needed(chunked);
    }
  EXPECT_GT(num_deleted, 1000);
}

/// A hybrid's ring waits for the cp lane in every step, and so for heads that arrive meanwhile: it
/// may miss only those fences that the all-to-alls need where the inner attention is alone.
TEST(Hybrid, EveryFenceButThoseBehindTheRingsIsNeeded) {
  for (const CoreCase& c : hybrid_cases(all_masks().front(), true)) {
    if (c.config.context.ulysses_size() == c.ranks) continue;
    CoreCase whole = c;
    whole.config.context.head_chunks = 1;
    EXPECT_GT(test::expect_every_fence_needed(whole), 0);
  }
}

/// METRICS 1.3: as many bytes back and forth as forth and back, whatever the mask.
TEST(Ulysses, MovesTheBytesOfTheFormula) {
  for (const Mask& mask : all_masks())
    for (const bool overlap : {false, true})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (CoreCase c : ulysses_cases(mask, overlap)) {
          c.config.dtype = dtype;
          const double u = c.ranks;
          const auto tokens = static_cast<double>(c.config.batch * c.config.seq) / u;
          const auto q = static_cast<double>(c.config.heads * c.config.head_dim);
          const auto kv = std::max(static_cast<double>(c.config.kv_heads), u) *
                          static_cast<double>(c.config.head_dim);
          const double bytes =
              (u - 1) / u * tokens * (2 * q + 2 * kv) * static_cast<double>(size_of(dtype));
          const RecordedSteps steps{c};
          for (int rank = 0; rank < c.ranks; ++rank) {
            EXPECT_EQ(steps.bytes_wire(rank, "fwd"), bytes) << c;
            EXPECT_EQ(steps.bytes_wire(rank, "bwd"), bytes) << c;
          }
        }
}

/// What hides: behind the attention of each chunk but the last the next one's heads travel.
TEST(Ulysses, ChunksTravelBehindTheAttentionOfOthers) {
  for (const std::int64_t kv_heads : {4, 2}) {
    CoreCase c = ulysses_case(2, 8, kv_heads, all_masks().front(), true);
    c.config.context.head_chunks = 4;
    c.config.batch = 1;
    const RecordedSteps steps{c};
    for (const std::vector<OpRecord>& ops : steps.ops) {
      std::size_t submitted = 0, awaited = 0;
      std::vector<std::size_t> behind;
      std::map<std::uint32_t, std::size_t> exchanges_before;
      for (const OpRecord& record : ops) {
        if (std::holds_alternative<AllToAll>(record.op)) ++submitted;
        if (const auto* signal = std::get_if<Signal>(&record.op))
          exchanges_before[signal->fence.id] = record.lane == Lane::cp ? submitted : 0;
        if (const auto* await = std::get_if<Await>(&record.op); await != nullptr)
          awaited = std::max(awaited, exchanges_before[await->fence.id]);
        if (std::holds_alternative<Attention>(record.op) ||
            std::holds_alternative<AttentionBackward>(record.op))
          behind.push_back(submitted - awaited);
      }
      // The next chunk's heads, and from the second chunk on the result of the one before.
      EXPECT_THAT(behind, testing::ElementsAre(1, 2, 2, 1, 1, 2, 2, 1));
    }
  }
}

TEST(Ulysses, TakesFewerChunksWhereHeadsDoNotDivide) {
  const auto num_attentions = [](std::int64_t heads, std::int64_t kv_heads, int chunks) {
    CoreCase c = ulysses_case(2, heads, kv_heads, all_masks().front(), true);
    c.config.context.head_chunks = chunks;
    return RecordedSteps{c}.num_attentions(0);
  };
  EXPECT_EQ(num_attentions(16, 16, 3), 2);  // 8 heads each
  EXPECT_EQ(num_attentions(12, 12, 4), 3);  // 6 each
  EXPECT_EQ(num_attentions(12, 4, 3), 2);   // 6 query and 2 KV heads each
  EXPECT_EQ(num_attentions(16, 1, 4), 4);   // one KV head for all chunks
  EXPECT_EQ(num_attentions(2, 2, 8), 1);
}

class UlyssesValues : public testing::TestWithParam<int> {};

/// The cases of as many ranks, half of them in bf16.
template <class Host>
void expect_values(int ranks, double tolerance) {
  for (const Mask& mask : all_masks())
    for (const bool overlap : {false, true})
      for (CoreCase c : all_cases(mask, overlap)) {
        if (c.ranks != ranks) continue;
        c.config.dtype = overlap == (c.config.kv_heads > 2) ? DType::bf16 : DType::f32;
        c.config.batch = overlap ? 2 : 1;
        test::expect_values<Host>(c, tolerance);
      }
}

TEST_P(UlyssesValues, EqualOneRankWithReferenceKernels) {
  expect_values<ReferenceHost>(GetParam(), 2e-6);
}

TEST_P(UlyssesValues, EqualOneRank) { expect_values<CpuHost>(GetParam(), 1e-5); }

TEST_P(UlyssesValues, EqualOneRankOnSpecialValues) {
  for (const std::size_t mask : {1U, 4U})  // causal, packed
    for (const CoreCase& c : all_cases(all_masks()[mask], true))
      if (c.ranks == GetParam()) test::expect_equal_on_special_values<CpuHost>(c);
}

INSTANTIATE_TEST_SUITE_P(Ranks, UlyssesValues, testing::Values(1, 2, 3, 4, 6, 8));

TEST(Ulysses, ErrorDoesNotGrowWithTheRanks) {
  CoreCase c = ulysses_case(1, 24, 24, all_masks()[1], true);
  test::expect_no_growth_of_error<CpuHost>(c, all_ranks);
}

}  // namespace
}  // namespace shardmark
