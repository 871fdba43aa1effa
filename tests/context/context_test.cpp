// Who holds which tokens, and who therefore needs whose.

#include "layers/attention_parts.hpp"
#include "tests/context/cores.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace shardmark {
namespace {

using test::all_masks;
using test::all_orders;
using test::Mask;

std::vector<std::int64_t> listed(const Places& places) {
  std::vector<std::int64_t> list;
  for (std::int64_t row = 0; row < places.count(); ++row) list.push_back(places[row]);
  return list;
}

TEST(PlacesOf, AreThoseOfTheDefinition) {
  using testing::ElementsAre;
  EXPECT_THAT(listed(places_of(TokenOrder::contiguous, 12, 3, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(listed(places_of(TokenOrder::zigzag, 12, 3, 0)), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(listed(places_of(TokenOrder::zigzag, 12, 3, 2)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(listed(places_of(TokenOrder::striped, 12, 3, 1)), ElementsAre(1, 4, 7, 10));
}

/// Every member of every kind holds its tokens alone, and all together hold the sequence.
TEST(LocalPlaces, TileTheSequence) {
  constexpr std::int64_t seq = 96;
  std::vector<std::int64_t> all(seq);
  std::iota(all.begin(), all.end(), 0);
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    for (const TokenOrder order : all_orders)
      for (const ContextKind kind :
           {ContextKind::ring, ContextKind::ulysses, ContextKind::all_gather, ContextKind::hybrid})
        for (const int ulysses : {1, 2, 3, 4})
          for (const bool outer : {false, true}) {
            if (ranks % ulysses != 0) continue;
            ContextParallel context{.kind = kind, .order = order, .ulysses = ulysses};
            context.ulysses_outer = outer;
            std::vector<std::int64_t> held;
            for (int position = 0; position < ranks; ++position) {
              context.cp = Group{Axis::cp, 5, 2, ranks, position};
              const std::vector<std::int64_t> own = listed(context.local_places(seq));
              EXPECT_EQ(own.size(), static_cast<std::size_t>(seq / ranks));
              held.insert(held.end(), own.begin(), own.end());
            }
            std::ranges::sort(held);
            EXPECT_EQ(held, all) << name_of(kind) << ' ' << name_of(order) << " on " << ranks
                                 << ", ulysses " << ulysses;
          }
}

/// The two groups of a hybrid are a grid: they meet in one rank, and its Ulysses group holds the
/// places of its part of the ring.
TEST(HybridGroups, FormAGrid) {
  for (const bool outer : {false, true}) {
    ContextParallel context{.kind = ContextKind::hybrid, .order = TokenOrder::zigzag};
    context.ulysses = 2;
    context.ulysses_outer = outer;
    for (int position = 0; position < 6; ++position) {
      context.cp = Group{Axis::cp, 4, 2, 6, position};
      const int me = context.cp.world_rank(position);
      const Group ulysses = context.ulysses_group(), ring = context.ring_group();
      EXPECT_EQ(ulysses.size, 2);
      EXPECT_EQ(ring.size, 3);
      EXPECT_EQ(ulysses.world_rank(ulysses.position), me);
      EXPECT_EQ(ring.world_rank(ring.position), me);
      EXPECT_EQ(outer ? ring.stride : ulysses.stride, context.cp.stride);
      std::vector<std::int64_t> held;
      for (int member = 0; member < 2; ++member) {
        const int there = (ulysses.world_rank(member) - context.cp.first) / context.cp.stride;
        const std::vector<std::int64_t> own = listed(context.at(there).local_places(48));
        held.insert(held.end(), own.begin(), own.end());
      }
      EXPECT_EQ(held, listed(context.group_places(48))) << "position " << position;
    }
  }
}

TEST(SeesAny, AgreesWithTheNumberOfVisiblePairs) {
  std::vector<Mask> masks = all_masks();
  masks.push_back({"narrow", true, 2});
  masks.push_back({"diagonal", false, 1});
  masks.push_back({"many", true, 3, {0, 1, 2, 10, 11, 40}});
  int num_blind = 0;
  for (const Mask& mask : masks)
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const TokenOrder order : all_orders)
        for (int q = 0; q < ranks; ++q)
          for (int k = 0; k < ranks; ++k) {
            const Visibility visibility{mask.causal, mask.window, mask.starts};
            const Places queries = places_of(order, 48, ranks, q);
            const Places keys = places_of(order, 48, ranks, k);
            const bool sees = visible_pairs(visibility, queries, keys) > 0;
            num_blind += sees ? 0 : 1;
            EXPECT_EQ(sees_any(visibility, queries, keys), sees)
                << mask.name << ' ' << name_of(order) << " on " << ranks << ": part " << q
                << " sees part " << k;
          }
  EXPECT_GT(num_blind, 100);
}

TEST(Parts, KnowHowFarTheyTravel) {
  AttentionConfig config{.seq = 48};
  config.context.cp.size = 4;
  const AttentionParts causal{config};
  for (int part = 0; part < 4; ++part) {
    EXPECT_EQ(causal.farthest(part), 3 - part);
    EXPECT_EQ(causal.nearest(part), part == 3 ? 4 : 1);
  }
  config.causal = false;
  const AttentionParts full{config};
  config.context.order = TokenOrder::zigzag;
  config.window = 2;
  const AttentionParts window{config};
  for (int part = 0; part < 4; ++part) {
    EXPECT_EQ(full.farthest(part), 3);
    EXPECT_EQ(full.nearest(part), 1);
  }
  EXPECT_EQ(window.nearest(3), 3);  // only member 2 is a neighbour, which is 3 further on
  EXPECT_EQ(window.farthest(0), 1);
}

}  // namespace
}  // namespace shardmark
