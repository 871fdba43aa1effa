#include "core/cpu/backend.hpp"

#include "collectives/run.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "core/record/backend.hpp"
#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/races.hpp"
#include "tests/collectives/plans.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace shardmark {
namespace {

using testing::IsEmpty;

/// Keeps what reaches it.
class Listing final : public BackendAdaptor {
 public:
  using BackendAdaptor::BackendAdaptor;
  void execute(const OpRecord& record) override { records.push_back(record); }
  std::vector<OpRecord> records;
};

Tensor tensor_of(std::uint32_t buffer, std::int64_t numel) {
  return numel == 0 ? Tensor{} : Tensor{buffer, DType::f32, Shape{numel}, 0, numel, nullptr};
}

/// All ranks' ops of a plan, without data.
std::vector<std::vector<OpRecord>> ops_of(const Plan& plan, std::int64_t block,
                                          std::span<const std::int64_t> counts) {
  static const std::string path = "plan";
  std::vector<std::vector<OpRecord>> ranks;
  const int n = plan.num_ranks;
  const CollectiveFacts& facts = facts_of(plan.collective);
  for (int rank = 0; rank < n; ++rank) {
    const bool none = plan.collective == Collective::barrier;
    const std::int64_t input = facts.input_has_n_blocks ? n * block : block;
    const std::int64_t output = facts.output_has_n_blocks ? n * block : block;
    const Call call{plan.collective,
                    tensor_of(1, !none && plan.has_input(rank) ? input : 0),
                    tensor_of(2, !none && plan.has_output(rank) ? output : 0),
                    Group{Axis::tp, 0, 1, n, rank},
                    plan.root,
                    Reduction::sum,
                    counts};
    const BoundPlan bound{plan, call, tensor_of(3, BoundPlan::scratch_numel(plan, call))};
    std::vector<OpRecord>& records = ranks.emplace_back();
    for (const Op& op : bound.ops())
      records.push_back({static_cast<std::uint32_t>(records.size()), Lane::tp, &path, op});
  }
  return ranks;
}

TEST(BoundPlans, PassTheRecordCheckers) {
  for (const int n : {1, 2, 3, 4, 5, 8})
    for_each_plan(n, [&](const Plan& plan) {
      const std::vector<std::int64_t> counts(
          plan.collective == Collective::all_to_all_v ? static_cast<std::size_t>(n * n) : 0, 10);
      for (const std::int64_t block : {10, 2}) {  // 2: some slots are empty
        if (block == 2 && !counts.empty()) continue;
        const auto ranks = ops_of(plan, block, counts);
        EXPECT_THAT(check_matching(ranks), IsEmpty()) << describe(plan);
        EXPECT_THAT(find_deadlock(ranks), IsEmpty()) << describe(plan);
        for (const auto& ops : ranks) EXPECT_THAT(find_races(ops), IsEmpty()) << describe(plan);
      }
    });
}

TEST(BoundPlans, OutOfPlaceRingNeedsNoScratchAndNoCopy) {
  const Plan plan = make_plan(Collective::all_reduce, "ring", std::vector<int>(4, 0));
  for (const auto& ops : ops_of(plan, 8, {}))
    for (const OpRecord& record : ops) EXPECT_FALSE(std::holds_alternative<Copy>(record.op));
  Call call{Collective::all_reduce, tensor_of(1, 8), tensor_of(2, 8), Group{Axis::tp, 0, 1, 4, 0}};
  EXPECT_EQ(BoundPlan::scratch_numel(plan, call), 0);
  call.y = call.x;
  EXPECT_EQ(BoundPlan::scratch_numel(plan, call), 2);  // a landing place of one chunk
}

TEST(BoundPlans, LargePlansAreQuick) {
  constexpr int n = 256;
  const auto begin = std::chrono::steady_clock::now();
  const Plan plan = make_plan(Collective::all_reduce, "ring", std::vector<int>(n, 0));
  EXPECT_THAT(validate(plan), IsEmpty());
  std::size_t num_ops = 0;
  for (int rank = 0; rank < n; ++rank) {
    const Call call{Collective::all_reduce, tensor_of(1, 1 << 20), tensor_of(2, 1 << 20),
                    Group{Axis::tp, 0, 1, n, rank}};
    num_ops += BoundPlan{plan, call, {}}.ops().size();
  }
  EXPECT_EQ(num_ops, static_cast<std::size_t>(n) * 3 * (n - 1));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 10);
}

TEST(PlannedBackend, ReplacesOnlyWhatIsChosen) {
  RecordBackend nothing;
  Listing listing{nothing};
  PlannedBackend planned{listing, {parse_axis_algorithms("tp=ring"), {}}, {0, 0, 0, 0}};
  const Mesh mesh{{.dp = 2, .tp = 2}};
  Rank rank{0, mesh, planned};
  const Buffer x = rank.allocate({8}, DType::f32, Category::activation);
  const Buffer y = rank.allocate({4}, DType::f32, Category::activation);
  all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
  ASSERT_EQ(listing.records.size(), 3U);
  EXPECT_EQ(name_of(listing.records[0].op), "send_recv");
  EXPECT_EQ(name_of(listing.records[1].op), "combine");
  EXPECT_EQ(name_of(listing.records[2].op), "send_recv");
  for (const OpRecord& record : listing.records) {
    EXPECT_EQ(record.seq, 0U);
    EXPECT_EQ(record.lane, Lane::tp);
  }
  EXPECT_EQ(planned.bytes_sent(), 32);
  listing.records.clear();
  all_reduce(rank, x.tensor(), rank.group(Axis::dp), Lane::dp);                     // another axis
  gather_to_root(rank, y.tensor(), x.tensor(), rank.group(Axis::tp), 0, Lane::tp);  // no ring
  ASSERT_EQ(listing.records.size(), 2U);
  EXPECT_EQ(name_of(listing.records[0].op), "all_reduce");
  EXPECT_EQ(name_of(listing.records[1].op), "gather");
}

TEST(PlannedBackend, AutoAsksTheTable) {
  RecordBackend nothing;
  Listing listing{nothing};
  const ChoiceTable table{{{Collective::all_reduce, 2, 0, 32, "recursive_doubling"}}};
  PlannedBackend planned{listing, {parse_axis_algorithms("tp=auto"), table}, {0, 0}};
  Rank rank{0, Mesh{{.tp = 2}}, planned};
  const Buffer x = rank.allocate({9}, DType::f32, Category::activation);
  all_reduce(rank, x.tensor().row_block(0, 8), rank.group(Axis::tp), Lane::tp);
  EXPECT_EQ(listing.records.size(), 2U);
  listing.records.clear();
  all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
  ASSERT_EQ(listing.records.size(), 1U);
  EXPECT_EQ(name_of(listing.records[0].op), "all_reduce");
}

TEST(PlannedBackend, RunsProgramsAgainAndAgain) {
  run_threads(3, [](Transport& transport) {
    transport.set_wait_policy({.yield = true});
    Arena arena{std::int64_t{16} << 20};
    Kernels kernels{1, arena};
    CpuBackend cpu{transport, arena, kernels};
    PlannedBackend planned{cpu, {parse_axis_algorithms("tp=ring"), {}}, {0, 0, 0}};
    Rank rank{transport.rank(), Mesh{{.tp = 3}}, planned};
    const Group tp = rank.group(Axis::tp);
    transport.connect(tp, Lane::tp);
    const Buffer x = rank.allocate({10}, DType::f32, Category::activation);
    const Buffer y = rank.allocate({30}, DType::f32, Category::activation);
    float expected = 1;
    fill(rank, x.tensor(), expected);
    for (int step = 0; step < 5; ++step) {
      rank.order(Lane::compute, Lane::tp);
      all_reduce(rank, x.tensor(), tp, Lane::tp);
      all_gather(rank, x.tensor(), y.tensor(), tp, Lane::tp);
      rank.order(Lane::tp, Lane::compute);
      expected *= 3;
    }
    std::vector<float> values(30);
    planned.read(y.tensor(), values.data());
    EXPECT_THAT(values, testing::Each(expected));
    EXPECT_EQ(planned.bytes_sent(), transport.bytes_started());
  });
}

TEST(AxisAlgorithms, ErrorsSayWhatExists) {
  EXPECT_EQ(parse_axis_algorithms("tp=ring,dp=auto").at(Axis::dp), "auto");
  EXPECT_THROW((void)parse_axis_algorithms("tp"), InputError);
  EXPECT_THROW((void)parse_axis_algorithms("xx=ring"), InputError);
  EXPECT_THROW((void)parse_axis_algorithms("tp=ring,tp=ring"), InputError);
  try {
    (void)parse_axis_algorithms("tp=fast");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("no algorithm 'fast'; there is native, auto, ring"));
  }
}

}  // namespace
}  // namespace shardmark
