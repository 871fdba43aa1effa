#include "core/error.hpp"
#include "sim/cost_comm.hpp"
#include "sim/cost_compute.hpp"
#include "tests/sim/machines.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {
namespace {

using testing::HasSubstr;

Tensor tensor(std::uint32_t buffer, const Shape& shape, DType dtype = DType::f32) {
  return {.buffer = buffer, .dtype = dtype, .shape = shape, .row_stride = shape.cols()};
}
/// 1 MB = 250,000 floats.
Tensor megabytes(std::uint32_t buffer, std::int64_t count) {
  return tensor(buffer, {count * 250'000});
}

TEST(ComputeCost, IsOverheadPlusTheLargerOfBothRoofs) {
  const Machine machine = round_machine(8);
  // 2e12 FLOP at 100 TFLOP/s; 3 x 400 MB at 1000 GB/s would be 1200 us.
  const Matmul large{tensor(1, {10'000, 10'000}), tensor(2, {10'000, 10'000}),
                     tensor(3, {10'000, 10'000})};
  EXPECT_NEAR(compute_us(machine, large), 1 + 20'000, 1e-6);
  // A vector times a matrix: 2e8 FLOP are 2 us, 400.08 MB are 400.08 us.
  const Matmul vector{tensor(1, {1, 10'000}), tensor(2, {10'000, 10'000}), tensor(3, {1, 10'000})};
  EXPECT_NEAR(compute_us(machine, vector), 1 + 400.08, 1e-6);
  const Add add{megabytes(1, 1), megabytes(2, 1), megabytes(3, 1)};
  EXPECT_NEAR(compute_us(machine, add), 1 + 3, 1e-9);
}

TEST(ComputeCost, RatesReplacePeakAndBandwidth) {
  Machine machine = round_machine(8);
  machine.rates = {{"matmul", "f32", Rates::Of::flops, {{1e9, 10}, {1e13, 80}}, "made up"},
                   {"add", "any", Rates::Of::bytes, {{1, 250}}, "made up"}};
  const Matmul matmul{tensor(1, {100, 10'000}), tensor(2, {10'000, 500}), tensor(3, {100, 500})};
  EXPECT_NEAR(compute_us(machine, matmul), 1 + 1e9 / 10e6, 1e-6);
  const Add add{megabytes(1, 1), megabytes(2, 1), megabytes(3, 1)};
  EXPECT_NEAR(compute_us(machine, add), 1 + 3 * 4, 1e-9);
}

TEST(ComputeCost, ADtypeWithoutPeakIsRefused) {
  const Matmul matmul{tensor(1, {8, 8}, DType::bf16), tensor(2, {8, 8}, DType::bf16),
                      tensor(3, {8, 8}, DType::bf16)};
  try {
    (void)compute_us(round_machine(8), matmul);
    FAIL() << "costed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no peak for bf16; it has one for f32"));
  }
}

TEST(ComputeCost, IdsDoNotDecideTheDtype) {
  const Embedding op{tensor(1, {4}, DType::i32), tensor(2, {16, 8}, DType::bf16),
                     tensor(3, {4, 8}, DType::bf16)};
  EXPECT_EQ(dtype_of(op), DType::bf16);
}

TEST(Layout, CountsNodesAndTheFullestOne) {
  const Machine machine = round_machine(4);
  const auto layout = [&](const Group& group) {
    const Layout l = layout_of(machine, group);
    return std::vector{l.num_members, l.num_nodes, l.per_node};
  };
  EXPECT_EQ(layout({Axis::tp, 0, 1, 4}), (std::vector{4, 1, 4}));
  EXPECT_EQ(layout({Axis::tp, 2, 1, 3}), (std::vector{3, 2, 2}));
  EXPECT_EQ(layout({Axis::dp, 1, 4, 3}), (std::vector{3, 3, 1}));
  EXPECT_EQ(layout({Axis::dp, 0, 2, 4}), (std::vector{4, 2, 2}));
}

constexpr auto ring = CommAlgorithm::ring;
constexpr auto tree = CommAlgorithm::tree;
constexpr auto recursive = CommAlgorithm::recursive;
constexpr auto hierarchical = CommAlgorithm::hierarchical;

/// On one node of 3: 2 us and 100 GB/s, that is 10 us per MB.
TEST(CommunicationCost, ClosedFormsOnOneNode) {
  const Machine machine = round_machine(8);
  const Group three{Axis::tp, 0, 1, 3};
  const AllReduce reduce{megabytes(1, 3), three};
  EXPECT_NEAR(*collective_us(machine, reduce, ring), 4 * 2 + 4 * 10, 1e-9);
  EXPECT_NEAR(*collective_us(machine, reduce, tree), 2 * (2 * 2 + 30), 1e-9);
  EXPECT_NEAR(*collective_us(machine, reduce, recursive), 4 * 2 + 4 * 10, 1e-9);
  EXPECT_FALSE(collective_us(machine, reduce, hierarchical));
  const AllGather gather{megabytes(1, 1), megabytes(2, 3), three};
  EXPECT_NEAR(*collective_us(machine, gather, ring), 2 * 2 + 2 * 10, 1e-9);
  EXPECT_FALSE(collective_us(machine, gather, tree));
  const ReduceScatter scatter{megabytes(1, 3), megabytes(2, 1), three};
  EXPECT_NEAR(*collective_us(machine, scatter, ring), 2 * 2 + 2 * 10, 1e-9);
  const Broadcast broadcast{megabytes(1, 3), megabytes(2, 3), three, 0};
  EXPECT_NEAR(*collective_us(machine, broadcast, ring), 2 * 2 + 3 * 10, 1e-9);
  EXPECT_NEAR(*collective_us(machine, broadcast, tree), 2 * 2 + 3 * 10, 1e-9);
  const AllToAll all{megabytes(1, 3), megabytes(2, 3), three};
  EXPECT_NEAR(*collective_us(machine, all, ring), 2 * (2 + 10), 1e-9);
  EXPECT_NEAR(communication_us(machine, Barrier{three}), 2 * 2, 1e-9);
}

/// 8 ranks on 2 nodes of 4: between nodes 10 us and 10 GB/s per rank, 40 GB/s for the four.
TEST(CommunicationCost, ClosedFormsOverNodes) {
  const Machine machine = round_machine(4);
  const Group eight{Axis::dp, 0, 1, 8};
  const AllReduce reduce{megabytes(1, 8), eight};
  const double chain = 6 * 2 + 10;
  EXPECT_NEAR(*collective_us(machine, reduce, ring), 2 * (chain + 7 * 25), 1e-9);
  EXPECT_NEAR(*collective_us(machine, reduce, tree), 2 * (3 * 2 + 10 + 8 * 25), 1e-9);
  EXPECT_NEAR(*collective_us(machine, reduce, hierarchical),
              2 * (3 * (2 + 2 * 10) + (10 + 1 * 100)), 1e-9);
  // One member per node goes by the slow link alone.
  const Group apart{Axis::dp, 0, 4, 2};
  EXPECT_NEAR(*collective_us(machine, AllReduce{megabytes(1, 2), apart}, ring), 2 * (10 + 1 * 100),
              1e-9);
  EXPECT_FALSE(collective_us(machine, AllReduce{megabytes(1, 2), apart}, hierarchical));
}

TEST(CommunicationCost, TheFastestOfTheMachinesAlgorithmsCounts) {
  Machine machine = round_machine(1);
  machine.algorithms = {ring, tree};
  machine.collective_overhead_us.value = 5;
  const Group many{Axis::tp, 0, 1, 64};
  const AllReduce small{tensor(1, {1}), many}, large{megabytes(1, 1000), many};
  EXPECT_NEAR(communication_us(machine, small), 5 + *collective_us(machine, small, tree), 1e-9);
  EXPECT_NEAR(communication_us(machine, large), 5 + *collective_us(machine, large, ring), 1e-9);
  // A tree gathers nothing: without a ring in the list it is still a ring.
  machine.algorithms = {tree};
  const AllGather gather{megabytes(1, 1), megabytes(2, 64), many};
  EXPECT_NEAR(communication_us(machine, gather), 5 + *collective_us(machine, gather, ring), 1e-9);
}

TEST(CommunicationCost, MessagesGoByTheLinkBetweenTheTwo) {
  const Machine machine = round_machine(4);
  const Group group{Axis::pp, 0, 2, 3, 0};  // ranks 0, 2 and 4: the last on another node
  const auto cost = [&](int to) {
    return communication_us(machine, SendRecv{megabytes(1, 1), {}, group, to, -1});
  };
  EXPECT_NEAR(cost(1), 2 + 10, 1e-9);
  EXPECT_NEAR(cost(2), 10 + 100, 1e-9);
  EXPECT_EQ(cost(-1), 0);
}

TEST(CommunicationCost, ACollectivesOwnNumbersReplaceTheLinks) {
  Machine machine = round_machine(4);
  machine.inside.collectives["all_reduce"] = {{7, "made up"}, {50, "made up"}};
  const Group three{Axis::tp, 0, 1, 3};
  EXPECT_NEAR(communication_us(machine, AllReduce{megabytes(1, 3), three}), 4 * 7 + 4 * 20, 1e-9);
  EXPECT_NEAR(communication_us(machine, AllGather{megabytes(1, 1), megabytes(2, 3), three}),
              2 * 2 + 2 * 10, 1e-9);
}

/// All-reduces on a node of A100s as published with vTrain (Bang et al. 2024, arXiv 2312.12391);
/// the machine file's link is fitted to those of 4 and 8 ranks.
TEST(CommunicationCost, PublishedAllReducesAreWithin15Percent) {
  struct Published {
    int ranks;
    std::int64_t mebibytes;
    double time_us;
  };
  const Machine machine = load_machine("a100-sxm-8");
  for (const auto& [ranks, mebibytes, time_us] : std::vector<Published>{{3, 64, 500.3},
                                                                        {4, 16, 179.6},
                                                                        {4, 256, 1929.0},
                                                                        {8, 1, 92.79},
                                                                        {8, 64, 579.9},
                                                                        {8, 1024, 8193.0}}) {
    const AllReduce op{tensor(1, {mebibytes << 18}), {Axis::tp, 0, 1, ranks}};
    EXPECT_NEAR(communication_us(machine, op) / time_us, 1, 0.15)
        << ranks << " ranks, " << mebibytes << " MiB";
  }
}

TEST(CommunicationCost, UnevenBlocksCountTheHeavierDirection) {
  const Machine machine = round_machine(4);
  // Member 1 sends 250,000 and 500,000 floats and receives 750,000 and nothing.
  static const std::vector<std::int64_t> counts{0, 750'000, 0, 250'000, 0, 500'000, 0, 0, 0};
  const Group three{Axis::ep, 0, 1, 3, 1};
  EXPECT_NEAR(communication_us(machine, AllToAllV{megabytes(1, 3), megabytes(2, 3), three, counts}),
              (2 + 30) + (2 + 20), 1e-9);
}

TEST(CommunicationCost, AGroupOfOneIsFreeAndASecondNodeMustExist) {
  Machine machine = round_machine(2);
  EXPECT_EQ(communication_us(machine, AllReduce{megabytes(1, 1), Group{}}), 0);
  machine.has_between = false;
  try {
    (void)communication_us(machine, AllReduce{megabytes(1, 1), Group{Axis::tp, 0, 1, 3}});
    FAIL() << "costed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("machine round is one node of 2 ranks, tp[0,1,2] spans 2"));
  }
}

}  // namespace
}  // namespace shardmark::test
