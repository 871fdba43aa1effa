#pragma once

// What every transport must do, as functions that each rank of a world runs. Failures are reported
// through GoogleTest and name rank and element. Instantiated in tests/unit (threads) and tests/mpi.

#include "tests/support/collectives_conformance.hpp"
#include "tests/support/messages_conformance.hpp"

#include <random>
#include <string_view>

namespace shardmark::conformance {

struct Check {
  std::string_view name;
  void (*run)(Transport&);
};

/// Random data, where the order of additions shows: all members must hold the same bits.
inline void members_end_with_identical_bits(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  std::mt19937 generator{static_cast<unsigned>(transport.rank()) + 1U};
  std::normal_distribution<double> normal;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t numel : {1L, 2L, 7L, 100L, 4096L, 30001L}) {
      Data x{dtype, numel};
      x.fill([&](std::int64_t) { return normal(generator); });
      communicate(transport, AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
      const std::string mine{reinterpret_cast<const char*>(x.tensor().data),
                             static_cast<std::size_t>(x.tensor().bytes())};
      const auto all = transport.gather(mine);
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        EXPECT_TRUE(all[rank] == mine) << name_of(dtype) << " x " << numel << ": ranks " << rank
                                       << " and " << transport.rank() << " differ";
    }
}

/// Groups along both axes of a 2 x (n/2) grid, on lanes of their own: strided members, several
/// communicators.
inline void groups_are_independent(Transport& transport) {
  if (transport.size() % 2 != 0) return;
  const Mesh mesh{{.dp = 2, .tp = transport.size() / 2}};
  const Group tp = mesh.group(transport.rank(), Axis::tp);
  const Group dp = mesh.group(transport.rank(), Axis::dp);
  transport.connect(tp, Lane::tp);
  transport.connect(dp, Lane::dp);
  transport.connect(dp, Lane::tp);
  for (int round = 0; round < 20; ++round) {
    check_all_reduce(transport, tp, Lane::tp, {DType::f32, 77, true});
    check_all_reduce(transport, dp, Lane::dp, {DType::f32, 33, false});
    check_all_reduce(transport, dp, Lane::tp, {DType::bf16, 5, true, 0, Reduction::max});
  }
}

/// Ranks start and test the lanes in different orders.
inline void lanes_are_independent(Transport& transport) {
  const Group group = world_of(transport);
  constexpr Lane lanes[] = {Lane::tp, Lane::cp, Lane::dp};
  for (const Lane lane : lanes) transport.connect(group, lane);
  for (std::size_t round = 0; round < 20; ++round) {
    const std::int64_t numel = 1000 + static_cast<std::int64_t>(round) * 501;
    Data x[] = {{DType::f32, numel}, {DType::f32, numel}, {DType::f32, numel}};
    const auto turn = [&](std::size_t i) {
      return (i + static_cast<std::size_t>(transport.rank()) + round) % 3;
    };
    const auto start = [&](std::size_t i) {
      x[i].fill(
          [&](std::int64_t e) { return value_at(transport.rank() + static_cast<int>(i), e); });
      transport.start(AllReduce{x[i].tensor(), group, Reduction::sum}, lanes[i]);
    };
    for (std::size_t i = 0; i < 3; ++i) start(turn(i));
    for (std::size_t i = 3; i-- > 0;) finish(transport, lanes[turn(i)]);
    for (std::size_t i = 0; i < 3; ++i)
      x[i].expect(transport, "lane " + std::string{name_of(lanes[i])}, [&](std::int64_t e) {
        double sum = 0;
        for (int rank = 0; rank < group.size; ++rank)
          sum += value_at(rank + static_cast<int>(i), e);
        return sum;
      });
  }
}

/// A group of one: an all_reduce in place leaves its tensor alone, the others copy; nothing crosses
/// a link.
inline void groups_of_one_copy(Transport& transport) {
  const Group alone{Axis::tp, transport.rank(), 1, 1, 0};
  transport.connect(alone, Lane::tp);
  Data input{DType::f32, 1000};
  const Tensor& x = input.tensor();
  const auto value = [&](std::int64_t i) { return value_at(transport.rank(), i); };
  input.fill(value);
  const double before = transport.bytes_started();
  communicate(transport, AllReduce{x, alone, Reduction::avg}, Lane::tp);
  communicate(transport, Barrier{alone}, Lane::tp);
  input.expect(transport, "all_reduce alone", value);
  const std::int64_t counts[] = {1000};
  const auto check = [&](const auto& make) {
    Data output{DType::f32, 1000};
    const Op op = make(output.tensor());
    communicate(transport, op, Lane::tp);
    output.expect(transport, std::string{name_of(op)} + " alone", value);
  };
  using Y = const Tensor&;
  check([&](Y y) { return Op{AllReduce{x, alone, Reduction::avg, y}}; });
  check([&](Y y) { return Op{AllGather{x, y, alone}}; });
  check([&](Y y) { return Op{ReduceScatter{x, y, alone, Reduction::prod}}; });
  check([&](Y y) { return Op{AllToAll{x, y, alone}}; });
  check([&](Y y) { return Op{AllToAllV{x, y, alone, counts}}; });
  check([&](Y y) { return Op{Broadcast{x, y, alone}}; });
  check([&](Y y) { return Op{Reduce{x, y, alone}}; });
  check([&](Y y) { return Op{Gather{x, y, alone}}; });
  check([&](Y y) { return Op{Scatter{x, y, alone}}; });
  check([&](Y y) { return Op{SendRecv{x, y, alone, 0, 0}}; });
  EXPECT_EQ(transport.bytes_started(), before);
}

inline void bytes_are_counted_as_ring(Transport& transport) {
  const Group group = connected_world(transport);
  const double n = group.size;
  Data part{DType::f32, 256};
  Data whole{DType::f32, 256 * group.size};
  Data other{DType::f32, 256 * group.size};
  part.fill([](std::int64_t) { return 1.0; });
  const Tensor& x = part.tensor();
  const Tensor& y = whole.tensor();
  const auto expect = [&](const Op& op, double bytes) {
    const double before = transport.bytes_started();
    communicate(transport, op, Lane::tp);
    EXPECT_NEAR(transport.bytes_started() - before, bytes, 1e-6)
        << "rank " << transport.rank() << ": " << name_of(op);
  };
  const double crosses = group.size > 1 ? 1024 : 0;
  expect(AllReduce{x, group, Reduction::sum}, 2 * (n - 1) / n * 1024);
  expect(AllGather{x, y, group}, (n - 1) * 1024);
  expect(ReduceScatter{y, x, group}, (n - 1) * 1024);
  expect(AllToAll{y, other.tensor(), group}, (n - 1) * 1024);
  expect(Broadcast{x, x, group, 0}, crosses);
  expect(Reduce{x, x, group, 0}, crosses);
  expect(Gather{x, y, group, 0}, (n - 1) * 1024);
  expect(Scatter{y, x, group, 0}, (n - 1) * 1024);
  expect(Barrier{group}, 0);
  if (group.size == 1) return;
  const int last = group.size - 1;
  // What it sends, not what it receives.
  if (group.position == 0) expect(SendRecv{x, Tensor{}, group, last, -1}, 1024);
  if (group.position == last) expect(SendRecv{Tensor{}, x, group, -1, 0}, 0);
}

inline void control_plane_agrees(Transport& transport) {
  const int rank = transport.rank();
  const int size = transport.size();
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(transport.maximum(rank * 1.5), (size - 1) * 1.5);
    EXPECT_EQ(transport.sum(rank), size * (size - 1) / 2.0);
    transport.barrier();
  }
  const auto texts = transport.gather(std::string(static_cast<std::size_t>(rank) * 3, 'x'));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(size));
  for (std::size_t peer = 0; peer < texts.size(); ++peer)
    EXPECT_EQ(texts[peer], std::string(peer * 3, 'x'));
  for (const std::string& nothing : transport.gather(std::string{})) EXPECT_EQ(nothing, "");
  EXPECT_EQ(transport.broadcast(rank == 0 ? "from rank 0" : "ignored"), "from rank 0");
  EXPECT_EQ(transport.broadcast(rank == 0 ? "to idle ranks" : "", Transport::Waiting::idle),
            "to idle ranks");
}

inline void endpoints_are_complete(Transport& transport) {
  ASSERT_EQ(transport.endpoints().size(), static_cast<std::size_t>(transport.size()));
  for (int rank = 0; rank < transport.size(); ++rank) {
    const Endpoint& at = transport.endpoints()[static_cast<std::size_t>(rank)];
    EXPECT_EQ(at.rank, rank);
    EXPECT_FALSE(at.host.empty());
    EXPECT_GT(at.pid, 0);
  }
  EXPECT_EQ(transport.find_dead_peer(), "");
  transport.barrier();
}

inline constexpr Check checks[] = {
    {"all_reduce_is_exact", all_reduce_is_exact},
    {"all_reduce_of_odd_millions", all_reduce_of_odd_millions},
    {"all_gather_is_exact", all_gather_is_exact},
    {"reduce_scatter_is_exact", reduce_scatter_is_exact},
    {"all_to_all_is_exact", all_to_all_is_exact},
    {"all_to_all_v_is_exact", all_to_all_v_is_exact},
    {"broadcast_is_exact", broadcast_is_exact},
    {"reduce_is_exact", reduce_is_exact},
    {"gather_is_exact", gather_is_exact},
    {"scatter_is_exact", scatter_is_exact},
    {"barrier_waits_for_all", barrier_waits_for_all},
    {"messages_go_round", messages_go_round},
    {"messages_stay_in_order", messages_stay_in_order},
    {"messages_and_collectives_alternate", messages_and_collectives_alternate},
    {"large_messages_arrive", large_messages_arrive},
    {"messages_on_lanes_are_independent", messages_on_lanes_are_independent},
    {"stages_send_while_they_receive", stages_send_while_they_receive},
    {"the_last_stage_sends_to_the_first", the_last_stage_sends_to_the_first},
    {"members_end_with_identical_bits", members_end_with_identical_bits},
    {"groups_are_independent", groups_are_independent},
    {"lanes_are_independent", lanes_are_independent},
    {"groups_of_one_copy", groups_of_one_copy},
    {"bytes_are_counted_as_ring", bytes_are_counted_as_ring},
    {"control_plane_agrees", control_plane_agrees},
    {"endpoints_are_complete", endpoints_are_complete},
};

}  // namespace shardmark::conformance
