#include "core/mesh.hpp"

#include "core/error.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace shardmark {
namespace {

TEST(Mesh, TpIsInnermost) {
  const Mesh mesh{{.dp = 2, .tp = 3}};
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.group(4, Axis::tp).to_string(), "tp[3,4,5]");
  EXPECT_EQ(mesh.group(4, Axis::dp).to_string(), "dp[1,4]");
  EXPECT_EQ(mesh.group(4, Axis::tp).position, 1);
  EXPECT_EQ(mesh.group(4, Axis::dp).position, 1);
  EXPECT_EQ(mesh.group(4, Axis::cp).to_string(), "cp[4]");
}

TEST(Mesh, CoordinatesGiveTheRankBack) {
  const Mesh mesh{{.dp = 2, .pp = 3, .cp = 2, .ep = 1, .tp = 3}};
  EXPECT_EQ(mesh.size(), 36);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    int rebuilt = 0;
    for (std::size_t i = 0; i < num_axes; ++i) {
      const Axis axis = static_cast<Axis>(i);
      rebuilt = rebuilt * mesh.degree(axis) + mesh.coordinate(rank, axis);
      const Group group = mesh.group(rank, axis);
      EXPECT_EQ(group.world_rank(group.position), rank);
      EXPECT_EQ(group.size, mesh.degree(axis));
    }
    EXPECT_EQ(rebuilt, rank);
  }
}

TEST(Mesh, GroupsOfAnAxisHoldEveryRankOnce) {
  const Mesh mesh{{.dp = 2, .tp = 3}};
  for (const Axis axis : {Axis::dp, Axis::pp, Axis::tp}) {
    std::vector<int> ranks;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const Group group = mesh.group(rank, axis);
      if (group.position > 0) continue;
      for (int member = 0; member < group.size; ++member) {
        ranks.push_back(group.world_rank(member));
        EXPECT_TRUE(same_members(group, mesh.group(group.world_rank(member), axis)));
      }
    }
    EXPECT_THAT(ranks, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5)) << name_of(axis);
  }
}

TEST(Mesh, RefusesWhatIsNoMesh) {
  EXPECT_THROW(Mesh({.tp = 0}), Error);
  EXPECT_THROW((void)Mesh{{.tp = 3}}.group(3, Axis::tp), Error);
}

TEST(Group, PartsAreConsecutiveMembers) {
  const Group group{Axis::tp, 6, 1, 6, 4};
  EXPECT_EQ(group.part(3).to_string(), "tp[9,10,11]");
  EXPECT_EQ(group.part(3).position, 1);
  EXPECT_EQ(group.part(2).to_string(), "tp[10,11]");
  EXPECT_EQ(group.part(6).to_string(), group.to_string());
  EXPECT_EQ(group.part(1).to_string(), "tp[10]");
  EXPECT_EQ((Group{Axis::dp, 1, 3, 4, 3}.part(2).to_string()), "dp[7,10]");
  EXPECT_THROW((void)group.part(4), Error);
}

TEST(Group, PositionDoesNotCountAmongMembers) {
  const Group group{Axis::tp, 0, 2, 3, 0};
  EXPECT_TRUE(same_members(group, {Axis::tp, 0, 2, 3, 2}));
  EXPECT_FALSE(same_members(group, {Axis::dp, 0, 2, 3, 0}));
  EXPECT_FALSE(same_members(group, {Axis::tp, 0, 1, 3, 0}));
  EXPECT_TRUE(same_members({Axis::tp, 5, 1, 1, 0}, {Axis::tp, 5, 4, 1, 0}));
}

}  // namespace
}  // namespace shardmark
