#pragma once

// What every transport must do, as functions that each rank of a world runs. Failures are reported
// through GoogleTest and name rank and element. Instantiated in tests/unit (threads) and tests/mpi.

#include "core/bf16.hpp"
#include "core/mesh.hpp"
#include "core/ops.hpp"
#include "core/transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::conformance {

struct Check {
  std::string_view name;
  void (*run)(Transport&);
};

/// Elements of one dtype in memory of their own, with a tensor over them.
class Data {
 public:
  Data(DType dtype, std::int64_t numel)
      : bytes_(static_cast<std::size_t>(numel * size_of(dtype)) + 64, std::byte{0x7B}) {
    auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    auto* aligned = bytes_.data() + (64 - address % 64) % 64;
    tensor_ = Tensor{1, dtype, Shape{numel}, 0, numel, aligned};
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  [[nodiscard]] double get(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    if (tensor_.dtype == DType::f32) return static_cast<double>(tensor_.as<float>()[at]);
    if (tensor_.dtype == DType::bf16)
      return static_cast<double>(to_float(tensor_.as<std::uint16_t>()[at]));
    return tensor_.as<std::int32_t>()[at];
  }
  void set(std::int64_t i, double value) {
    const auto at = static_cast<std::size_t>(i);
    if (tensor_.dtype == DType::f32)
      tensor_.as<float>()[at] = static_cast<float>(value);
    else if (tensor_.dtype == DType::bf16)
      tensor_.as<std::uint16_t>()[at] = to_bf16(static_cast<float>(value));
    else
      tensor_.as<std::int32_t>()[at] = static_cast<std::int32_t>(value);
  }
  template <class Function>
  void fill(const Function& value_of) {
    for (std::int64_t i = 0; i < tensor_.numel(); ++i) set(i, value_of(i));
  }
  /// Reports the first element that differs from `expected(i)`.
  template <class Function>
  void expect(const Transport& transport, const std::string& what, const Function& expected) const {
    for (std::int64_t i = 0; i < tensor_.numel(); ++i)
      if (get(i) != expected(i)) {
        ADD_FAILURE() << "rank " << transport.rank() << ": " << what << ", element " << i << " of "
                      << tensor_.numel() << " is " << get(i) << ", not " << expected(i);
        return;
      }
  }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

/// Small integers, exact in every dtype even when summed over 8 ranks.
inline double value_at(int rank, std::int64_t element) {
  return static_cast<double>((element * 7 + rank * 5) % 17 - 8);
}

inline void finish(Transport& transport, Lane lane) {
  Waiter waiter{transport};
  while (!transport.test(lane)) waiter.pause([] { return std::string{"a conformance check"}; });
}

inline void communicate(Transport& transport, const Op& op, Lane lane) {
  transport.start(op, lane);
  finish(transport, lane);
}

inline Group world_of(const Transport& transport) {
  return Group{Axis::tp, 0, 1, transport.size(), transport.rank()};
}

inline constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::i32};
inline constexpr std::int64_t sizes[] = {1, 3, 16, 1000, 20011};

inline void check_all_reduce(Transport& transport, const Group& group, Lane lane, DType dtype,
                             Reduction reduction, std::int64_t numel) {
  Data x{dtype, numel};
  x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
  communicate(transport, AllReduce{x.tensor(), group, reduction}, lane);
  const std::string what = std::string{"all_reduce "} + std::string{name_of(dtype)} +
                           (reduction == Reduction::sum ? " sum" : " max");
  x.expect(transport, what, [&](std::int64_t i) {
    double result = value_at(group.world_rank(0), i);
    for (int member = 1; member < group.size; ++member) {
      const double value = value_at(group.world_rank(member), i);
      result = reduction == Reduction::sum ? result + value : std::max(result, value);
    }
    return result;
  });
}

inline void all_reduce_is_exact(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  for (const DType dtype : dtypes)
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      for (const std::int64_t numel : sizes)
        check_all_reduce(transport, group, Lane::tp, dtype, reduction, numel);
}

inline void all_reduce_of_odd_million(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  check_all_reduce(transport, group, Lane::tp, DType::f32, Reduction::sum, 1000003);
  check_all_reduce(transport, group, Lane::tp, DType::bf16, Reduction::sum, 100003);
}

inline void all_gather_is_exact(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  for (const DType dtype : dtypes)
    for (const std::int64_t numel : sizes) {
      Data x{dtype, numel};
      Data y{dtype, numel * group.size};
      x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
      communicate(transport, AllGather{x.tensor(), y.tensor(), group}, Lane::tp);
      y.expect(transport, "all_gather",
               [&](std::int64_t i) { return value_at(static_cast<int>(i / numel), i % numel); });
    }
}

inline void reduce_scatter_is_exact(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  for (const DType dtype : dtypes)
    for (const std::int64_t numel : sizes) {
      Data x{dtype, numel * group.size};
      Data y{dtype, numel};
      x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
      communicate(transport, ReduceScatter{x.tensor(), y.tensor(), group}, Lane::tp);
      y.expect(transport, "reduce_scatter", [&](std::int64_t i) {
        double sum = 0;
        for (int rank = 0; rank < group.size; ++rank)
          sum += value_at(rank, transport.rank() * numel + i);
        return sum;
      });
      x.expect(transport, "the input of reduce_scatter",
               [&](std::int64_t i) { return value_at(transport.rank(), i); });
    }
}

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
    check_all_reduce(transport, tp, Lane::tp, DType::f32, Reduction::sum, 77);
    check_all_reduce(transport, dp, Lane::dp, DType::f32, Reduction::sum, 33);
    check_all_reduce(transport, dp, Lane::tp, DType::bf16, Reduction::max, 5);
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

/// A group of one: all_reduce leaves its tensor alone, the others copy; nothing crosses a link.
inline void groups_of_one_copy(Transport& transport) {
  const Group alone{Axis::tp, transport.rank(), 1, 1, 0};
  transport.connect(alone, Lane::tp);
  Data x{DType::f32, 1000};
  Data y{DType::f32, 1000};
  Data z{DType::f32, 1000};
  const auto value = [&](std::int64_t i) { return value_at(transport.rank(), i); };
  x.fill(value);
  const double before = transport.bytes_started();
  communicate(transport, AllReduce{x.tensor(), alone, Reduction::sum}, Lane::tp);
  communicate(transport, AllGather{x.tensor(), y.tensor(), alone}, Lane::tp);
  communicate(transport, ReduceScatter{x.tensor(), z.tensor(), alone}, Lane::tp);
  x.expect(transport, "all_reduce alone", value);
  y.expect(transport, "all_gather alone", value);
  z.expect(transport, "reduce_scatter alone", value);
  EXPECT_EQ(transport.bytes_started(), before);
}

inline void bytes_are_counted_as_ring(Transport& transport) {
  const Group group = world_of(transport);
  transport.connect(group, Lane::tp);
  const double n = group.size;
  Data part{DType::f32, 256};
  Data whole{DType::f32, 256 * group.size};
  part.fill([](std::int64_t) { return 1.0; });
  double before = transport.bytes_started();
  communicate(transport, AllReduce{part.tensor(), group, Reduction::sum}, Lane::tp);
  EXPECT_NEAR(transport.bytes_started() - before, 2 * (n - 1) / n * 1024, 1e-6);
  before = transport.bytes_started();
  communicate(transport, AllGather{part.tensor(), whole.tensor(), group}, Lane::tp);
  communicate(transport, ReduceScatter{whole.tensor(), part.tensor(), group}, Lane::tp);
  EXPECT_NEAR(transport.bytes_started() - before, 2 * (n - 1) * 1024, 1e-6);
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
    {"all_reduce_of_odd_million", all_reduce_of_odd_million},
    {"all_gather_is_exact", all_gather_is_exact},
    {"reduce_scatter_is_exact", reduce_scatter_is_exact},
    {"members_end_with_identical_bits", members_end_with_identical_bits},
    {"groups_are_independent", groups_are_independent},
    {"lanes_are_independent", lanes_are_independent},
    {"groups_of_one_copy", groups_of_one_copy},
    {"bytes_are_counted_as_ring", bytes_are_counted_as_ring},
    {"control_plane_agrees", control_plane_agrees},
    {"endpoints_are_complete", endpoints_are_complete},
};

}  // namespace shardmark::conformance
