// All-gather context parallelism: its op lists on the record backend, and its values against one
// rank.

#include "tests/context/records.hpp"
#include "tests/context/serial.hpp"

#include <set>
#include <string>

namespace shardmark {
namespace {

using test::all_cases;
using test::all_masks;
using test::all_orders;
using test::CoreCase;
using test::Data;
using test::Mask;
using test::RecordedSteps;

constexpr ContextKind kind = ContextKind::all_gather;
const std::vector<int> all_ranks{1, 2, 3, 4, 8};

/// With the heads in one piece and in two.
std::vector<CoreCase> with_chunks(std::vector<int> ranks) {
  std::vector<CoreCase> cases;
  for (CoreCase& c : all_cases(kind, std::move(ranks))) {
    cases.push_back(c);
    c.config.context.head_chunks = 2;
    if (c.config.overlap) cases.push_back(c);
  }
  return cases;
}

TEST(Gather, IsFreeOfRacesMatchedAndFinishes) {
  for (const CoreCase& c : with_chunks(all_ranks)) test::expect_clean(c);
}

TEST(Gather, ComputesEveryVisiblePairOnce) {
  for (const CoreCase& c : with_chunks(all_ranks)) test::expect_flops_of_the_whole(c);
}

TEST(Gather, EveryFenceIsNeeded) {
  int num_deleted = 0;
  for (const CoreCase& c : with_chunks({2, 3, 4}))
    if (c.config.overlap) num_deleted += test::expect_every_fence_needed(c);
  EXPECT_GT(num_deleted, 1000);
}

TEST(Gather, MovesTheBytesOfTheFormulaWhateverTheMask) {
  for (CoreCase c : with_chunks(all_ranks))
    for (const DType dtype : {DType::f32, DType::bf16}) {
      c.config.dtype = dtype;
      const RecordedSteps steps{c};
      const double whole = static_cast<double>(2 * c.config.batch * c.config.seq *
                                               c.config.kv_heads * c.config.head_dim);
      const double others = (c.ranks - 1.0) / c.ranks;
      for (int rank = 0; rank < c.ranks; ++rank) {
        EXPECT_NEAR(steps.bytes_wire(rank, "fwd"),
                    others * whole * static_cast<double>(size_of(dtype)), 0.5)
            << c;
        EXPECT_NEAR(steps.bytes_wire(rank, "bwd"), others * whole * 4, 0.5) << c;
      }
    }
}

/// K and V of the whole sequence and their gradients in f32, and log-sum-exps; in bf16 also sums of
/// o or dq.
TEST(Gather, NeedsTheMemoryItStates) {
  for (CoreCase c : with_chunks({2, 3, 4, 8}))
    for (const DType dtype : {DType::f32, DType::bf16}) {
      c.config.dtype = dtype;
      const auto rows = static_cast<double>(c.config.batch * c.config.seq);
      const auto q = static_cast<double>(c.config.heads * c.config.head_dim);
      const auto kv = static_cast<double>(c.config.kv_heads * c.config.head_dim);
      double bytes = 2 * rows * kv * static_cast<double>(size_of(dtype) + 4) +
                     rows / c.ranks * static_cast<double>(c.config.heads) * 4;
      if (dtype == DType::bf16) bytes += rows / c.ranks * q * 4;
      const RecordedSteps steps{c};
      for (int rank = 0; rank < c.ranks; ++rank) EXPECT_EQ(steps.core_bytes(rank), bytes) << c;
    }
}

/// The own part's compute waits for no exchange, and with it in pieces, a piece of the heads hides
/// the exchange of its neighbour.
TEST(Gather, HidesBehindWhatNeedsNoExchange) {
  CoreCase c = core_case(kind, TokenOrder::zigzag, 4, all_masks().front(), true);
  c.config.context.head_chunks = 2;
  const RecordedSteps steps{c};
  for (const std::vector<OpRecord>& ops : steps.ops) {
    std::vector<std::string_view> order;
    for (const OpRecord& record : ops) {
      const bool waits = std::holds_alternative<Await>(record.op) && record.lane == Lane::compute;
      const bool matters = std::holds_alternative<Attention>(record.op) ||
                           std::holds_alternative<AllGather>(record.op);
      if (record.path->starts_with("fwd") && (waits || matters))
        order.push_back(name_of(record.op));
    }
    EXPECT_THAT(order, testing::ElementsAre("all_gather", "attention", "await", "all_gather",
                                            "attention", "attention", "attention", "attention",
                                            "await", "attention", "attention", "attention"));
  }
}

/// In traces and tables a piece of the heads is a step, with the exchange that hides behind it.
TEST(Gather, EveryPieceOfTheHeadsIsAStep) {
  for (const CoreCase& c : with_chunks({3})) {
    const RecordedSteps steps{c};
    for (const char* pass : {"all_gather_forward", "all_gather_backward"}) {
      std::set<std::string> paths;
      for (const OpRecord& record : steps.ops[1])
        if (flops_of(record.op) > 0 && record.path->find(pass) != std::string::npos)
          paths.insert(*record.path);
      const AttentionConfig config = c.on({Axis::cp, 0, 1, c.ranks, 1});
      const int chunks =
          config.overlap ? config.context.usable_head_chunks(config.heads, config.kv_heads) : 1;
      ASSERT_EQ(paths.size(), static_cast<std::size_t>(chunks)) << c;
      EXPECT_THAT(*paths.rbegin(), testing::EndsWith(message(pass, "/step", chunks - 1))) << c;
    }
  }
}

class GatherValues : public testing::TestWithParam<int> {};

/// What is wrong here is the core.
TEST_P(GatherValues, EqualOneRankWithReferenceKernels) {
  for (const CoreCase& c : test::value_cases(kind, GetParam()))
    test::expect_values<test::ReferenceHost>(c, 2e-6);
}

TEST_P(GatherValues, EqualOneRank) {
  for (const CoreCase& c : test::value_cases(kind, GetParam()))
    test::expect_values<test::CpuHost>(c, 1e-5);
}

TEST_P(GatherValues, EqualOneRankOnSpecialValues) {
  for (const TokenOrder order : all_orders)
    for (const Mask& mask : all_masks()) {
      const CoreCase c = core_case(kind, order, GetParam(), mask, true);
      test::expect_equal_on_special_values<test::ReferenceHost>(c);
      test::expect_equal_on_special_values<test::CpuHost>(c);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GatherValues, testing::ValuesIn(all_ranks));

TEST(Gather, ErrorDoesNotGrowWithTheRanks) {
  for (const TokenOrder order : all_orders)
    for (const Mask& mask : {all_masks()[0], all_masks()[1]})
      test::expect_no_growth_of_error<test::CpuHost>(core_case(kind, order, 1, mask, true),
                                                     all_ranks);
}

}  // namespace
}  // namespace shardmark
