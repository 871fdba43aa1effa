// Ring Attention: its op lists on the record backend, and its values against one rank.

#include "tests/context/records.hpp"
#include "tests/context/serial.hpp"

namespace shardmark {
namespace {

using test::all_cases;
using test::all_masks;
using test::all_orders;
using test::CoreCase;
using test::Data;
using test::Mask;
using test::RecordedSteps;

const std::vector<int> all_ranks{1, 2, 3, 4, 8};

/// With overlap also for a single sequence, whose own part is computed in two halves backward.
std::vector<CoreCase> ring_cases(const std::vector<int>& ranks) {
  std::vector<CoreCase> cases = all_cases(ContextKind::ring, ranks);
  for (std::size_t i = 0, count = cases.size(); i < count; ++i)
    if (cases[i].config.overlap) {
      cases.push_back(cases[i]);
      cases.back().config.batch = 1;
    }
  return cases;
}

TEST(Ring, IsFreeOfRacesMatchedAndFinishes) {
  for (const CoreCase& c : ring_cases(all_ranks)) test::expect_clean(c);
}

TEST(Ring, ComputesEveryVisiblePairOnce) {
  for (const CoreCase& c : ring_cases(all_ranks)) test::expect_flops_of_the_whole(c);
}

TEST(Ring, EveryFenceIsNeeded) {
  int num_deleted = 0;
  for (const CoreCase& c : ring_cases({2, 3, 4}))
    if (c.config.overlap) num_deleted += test::expect_every_fence_needed(c);
  EXPECT_GT(num_deleted, 1000);
}

double part_bytes(const CoreCase& c, DType dtype) {
  return static_cast<double>(2 * c.config.batch * c.config.seq / c.ranks * c.config.kv_heads *
                             c.config.head_dim * size_of(dtype));
}

TEST(Ring, MovesTheBytesOfTheFormulaUnderFullAttention) {
  for (const int ranks : all_ranks)
    for (const TokenOrder order : all_orders)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        CoreCase c = core_case(ContextKind::ring, order, ranks, all_masks().front(), true);
        c.config.dtype = dtype;
        const RecordedSteps steps{c};
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(steps.bytes_wire(rank, "fwd"), (ranks - 1) * part_bytes(c, dtype)) << c;
          EXPECT_EQ(steps.bytes_wire(rank, "bwd"),
                    (ranks - 1) * (part_bytes(c, dtype) + part_bytes(c, DType::f32)))
              << c;
        }
      }
}

/// Counted from the masks by themselves: a part passes from hand to hand up to the last member that
/// sees any of it, its gradients from the first such member on to the owner.
TEST(Ring, MovesPartsOnlyAsFarAsTheyAreNeeded) {
  for (const CoreCase& c : all_cases(ContextKind::ring, all_ranks)) {
    const Visibility visibility{c.config.causal, c.config.window, c.config.starts};
    const auto places = [&](int part) {
      return places_of(c.config.context.order, c.config.seq, c.ranks, part);
    };
    double moves = 0, gradient_moves = 0;
    for (int part = 0; part < c.ranks; ++part) {
      std::vector<int> distances;
      for (int distance = 1; distance < c.ranks; ++distance)
        if (visible_pairs(visibility, places((part + distance) % c.ranks), places(part)) > 0)
          distances.push_back(distance);
      if (distances.empty()) continue;
      moves += distances.back();
      gradient_moves += c.ranks - distances.front();
    }
    const RecordedSteps steps{c};
    double forward = 0, backward = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      forward += steps.bytes_sent(rank, "fwd");
      backward += steps.bytes_sent(rank, "bwd");
    }
    EXPECT_EQ(forward, moves * part_bytes(c, c.config.dtype)) << c;
    EXPECT_EQ(backward,
              moves * part_bytes(c, c.config.dtype) + gradient_moves * part_bytes(c, DType::f32))
        << c;
  }
}

/// O(seq / ranks): two parts of K and V, three of their gradients in f32, and log-sum-exps; in bf16
/// also sums of o or dq and of the own dk and dv.
TEST(Ring, NeedsTheMemoryItStates) {
  for (const int ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CoreCase c =
          core_case(ContextKind::ring, TokenOrder::zigzag, ranks, all_masks().front(), true);
      c.config.dtype = dtype;
      const auto rows = static_cast<double>(c.config.batch * c.config.seq / ranks);
      const auto heads = static_cast<double>(c.config.heads);
      double bytes = 2 * part_bytes(c, dtype) + 3 * part_bytes(c, DType::f32) + rows * heads * 4;
      if (dtype == DType::bf16)
        bytes +=
            rows * heads * static_cast<double>(c.config.head_dim) * 4 + part_bytes(c, DType::f32);
      const RecordedSteps steps{c};
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(steps.core_bytes(rank), bytes) << c;
    }
}

TEST(Ring, LeavesOutTheStepsThatNobodySees) {
  const Mask& causal = all_masks()[1];
  const RecordedSteps contiguous{
      core_case(ContextKind::ring, TokenOrder::contiguous, 4, causal, true)};
  const RecordedSteps zigzag{core_case(ContextKind::ring, TokenOrder::zigzag, 4, causal, true)};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(contiguous.num_attentions(rank), rank + 1);
    EXPECT_EQ(zigzag.num_attentions(rank), 4);
  }
}

/// One exchange in flight behind one block of compute: nothing that computes waits for the exchange
/// of its own step.
TEST(Ring, ExchangesHideBehindTheStepsCompute) {
  const CoreCase c = core_case(ContextKind::ring, TokenOrder::zigzag, 4, all_masks().front(), true);
  const RecordedSteps steps{c};
  for (const std::vector<OpRecord>& ops : steps.ops) {
    const OpRecord* exchange = nullptr;
    int num_behind = 0;
    for (const OpRecord& record : ops) {
      if (std::holds_alternative<SendRecv>(record.op)) exchange = &record;
      if (std::holds_alternative<Await>(record.op) && record.lane == Lane::compute)
        exchange = nullptr;
      const bool computes = std::holds_alternative<Attention>(record.op) ||
                            std::holds_alternative<AttentionBackward>(record.op);
      if (computes && exchange != nullptr) {
        EXPECT_EQ(*record.path, *exchange->path);
        ++num_behind;
      }
    }
    EXPECT_EQ(num_behind, 3 + 4);  // K and V in the first three steps, then gradients
  }
}

class RingValues : public testing::TestWithParam<int> {};

/// What is wrong here is the core.
TEST_P(RingValues, EqualOneRankWithReferenceKernels) {
  for (const CoreCase& c : test::value_cases(ContextKind::ring, GetParam()))
    test::expect_values<test::ReferenceHost>(c, 2e-6);
}

TEST_P(RingValues, EqualOneRank) {
  for (const CoreCase& c : test::value_cases(ContextKind::ring, GetParam()))
    test::expect_values<test::CpuHost>(c, 1e-5);
}

TEST_P(RingValues, EqualOneRankOnSpecialValues) {
  for (const TokenOrder order : all_orders)
    for (const Mask& mask : all_masks()) {
      const CoreCase c = core_case(ContextKind::ring, order, GetParam(), mask, true);
      test::expect_equal_on_special_values<test::ReferenceHost>(c);
      test::expect_equal_on_special_values<test::CpuHost>(c);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingValues, testing::ValuesIn(all_ranks));

TEST(Ring, ErrorDoesNotGrowWithTheRanks) {
  for (const TokenOrder order : all_orders)
    for (const Mask& mask : {all_masks()[0], all_masks()[1]})
      test::expect_no_growth_of_error<test::CpuHost>(
          core_case(ContextKind::ring, order, 1, mask, true), all_ranks);
}

}  // namespace
}  // namespace shardmark
