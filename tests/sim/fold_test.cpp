#include "sim/fold.hpp"

#include "core/error.hpp"
#include "sim/predict.hpp"
#include "tests/record/recorded.hpp"
#include "tests/sim/machines.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {
namespace {

using testing::ElementsAre;

constexpr std::array<Axis, 3> alike{Axis::dp, Axis::cp, Axis::tp};

/// A training step in small: two micro-batches through the stages (whose work differs), K and V
/// round the cp group beside compute, two all-reduces of the tp group and one of half of it, the
/// gradients of the dp group beside the last work.
void hybrid_step(Rank& rank) {
  const Mesh& mesh = rank.mesh();
  const Group pp = rank.group(Axis::pp), cp = rank.group(Axis::cp), tp = rank.group(Axis::tp);
  const Buffer x = rank.allocate({64, 64}, DType::f32, Category::activation);
  const auto block = [&](std::int64_t first, std::int64_t count) {
    return x.tensor().row_block(first, count);
  };
  for (int micro = 0; micro < 2; ++micro) {
    if (pp.position > 0) send_recv(rank, {}, -1, block(0, 32), pp.position - 1, pp, Lane::compute);
    for (int i = 0; i <= pp.position % 3; ++i) add(rank, x.tensor(), x.tensor(), x.tensor());
    if (cp.size > 1) {
      rank.order(Lane::compute, Lane::cp);
      send_recv(rank, block(0, 16), (cp.position + 1) % cp.size, block(16, 16),
                (cp.position + cp.size - 1) % cp.size, cp, Lane::cp);
    }
    matmul(rank, x.tensor(), x.tensor(), x.tensor());
    rank.order(Lane::cp, Lane::compute);
    all_reduce(rank, x.tensor(), tp, Lane::compute);
    if (tp.size % 2 == 0) all_reduce(rank, block(0, 8), tp.part(tp.size / 2), Lane::compute);
    if (pp.position + 1 < pp.size)
      send_recv(rank, block(0, 32), pp.position + 1, {}, -1, pp, Lane::compute);
  }
  rank.order(Lane::compute, Lane::dp);
  if (mesh.degree(Axis::dp) > 1) all_reduce(rank, x.tensor(), rank.group(Axis::dp), Lane::dp);
  add(rank, x.tensor(), x.tensor(), x.tensor());
}

void expect_equal(const Prediction& folded, const Prediction& full, const std::string& world) {
  ASSERT_EQ(folded.replay.window_ns, full.replay.window_ns) << world;
  for (int rank = 0; rank < static_cast<int>(full.folding.num_ranks()); ++rank) {
    const auto &a = folded.ops_of(rank), &b = full.ops_of(rank);
    ASSERT_EQ(a.size(), b.size()) << world << " rank " << rank;
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(a[i].start_ns == b[i].start_ns && a[i].ready_ns == b[i].ready_ns &&
                  a[i].end_ns == b[i].end_ns)
          << world << " rank " << rank << " op " << i << ": folded ends at " << a[i].end_ns
          << ", unfolded at " << b[i].end_ns;
    const RankTime &p = folded.time_of(rank), &q = full.time_of(rank);
    ASSERT_TRUE(p.comp_ns == q.comp_ns && p.exposed_comm_ns == q.exposed_comm_ns &&
                p.idle_ns == q.idle_ns)
        << world << " rank " << rank;
  }
}

/// Also on nodes that cut through groups. Returns how many lists folding saved.
std::size_t compare(const Mesh::Degrees& d) {
  const Mesh mesh{d};
  const Recorded recorded{mesh, hybrid_step};
  std::size_t saved = 0;
  for (const int ranks_per_node : {2, 3, 8, 64}) {
    const Machine machine = round_machine(ranks_per_node);
    Folding folding = fold(mesh, ranks_per_node, alike);
    saved += folding.num_ranks() - folding.num_classes();
    std::vector<std::vector<OpRecord>> lists;
    for (const int rank : folding.representatives)
      lists.push_back(recorded.ops[static_cast<std::size_t>(rank)]);
    expect_equal(predict(lists, machine, std::move(folding)), predict(recorded.ops, machine),
                 message("dp ", d.dp, " pp ", d.pp, " cp ", d.cp, " tp ", d.tp, ", nodes of ",
                         ranks_per_node));
  }
  return saved;
}

class Worlds : public testing::TestWithParam<int> {};

TEST_P(Worlds, FoldedEqualsUnfolded) {
  const int size = GetParam();
  std::size_t saved = 0;
  for (int dp = 1; dp <= size; ++dp)
    for (int pp = 1; dp * pp <= size; ++pp)
      for (int cp = 1; dp * pp * cp <= size; ++cp) {
        const int tp = size / (dp * pp * cp);
        if (dp * pp * cp * tp == size) saved += compare({.dp = dp, .pp = pp, .cp = cp, .tp = tp});
        if (HasFatalFailure()) return;
      }
  EXPECT_EQ(saved > 0, size > 1);
}

INSTANTIATE_TEST_SUITE_P(OfUpTo64Ranks, Worlds, testing::Range(1, 65));

TEST(Fold, ReplicasAndTpMembersFoldAndStagesDoNot) {
  const Folding folding = fold(Mesh{{.dp = 2, .pp = 3, .tp = 4}}, 4, alike);
  EXPECT_THAT(folding.representatives, ElementsAre(0, 4, 8));
  EXPECT_EQ(folding.class_of[13], 0);  // dp 1, stage 0, member 1
  EXPECT_EQ(folding.class_of[23], 2);
}

/// With tp 2 and pp 3 on nodes of 8, a copy of the model has 6 ranks and lies on the nodes in
/// another way than the next one.
TEST(Fold, ReplicasThatLieDifferentlyOnTheNodesStayApart) {
  const Mesh mesh{{.dp = 4, .pp = 3, .tp = 2}};
  EXPECT_EQ(fold(mesh, 64, alike).num_classes(), 3U);
  EXPECT_GT(fold(mesh, 8, alike).num_classes(), 3U);
}

TEST(Fold, WithoutEqualAxesEveryRankStandsForItself) {
  const Mesh mesh{{.dp = 2, .tp = 3}};
  const Folding folding = fold(mesh, 8, {});
  EXPECT_EQ(folding.class_of, unfolded(6).class_of);
  EXPECT_EQ(folding.representatives, unfolded(6).representatives);
}

TEST(Fold, FourThousandRanksAreSixteenClasses) {
  const Folding folding = fold(Mesh{{.dp = 32, .pp = 16, .tp = 8}}, 8, alike);
  EXPECT_EQ(folding.num_ranks(), 4096U);
  EXPECT_EQ(folding.num_classes(), 16U);
}

TEST(Fold, ListsAndClassesMustAgreeInNumber) {
  const Recorded recorded{Mesh{{.tp = 3}}, hybrid_step};
  EXPECT_THROW((void)predict(recorded.ops, round_machine(8), fold(Mesh{{.tp = 3}}, 8, alike)),
               Error);
}

}  // namespace
}  // namespace shardmark::test
