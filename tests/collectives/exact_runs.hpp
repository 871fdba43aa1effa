#pragma once

// Plans on real data: every algorithm on a transport, compared with what the collective says and so
// with the transport's own.

#include "collectives/exact.hpp"
#include "collectives/plan.hpp"
#include "core/cpu/backend.hpp"
#include "core/rank.hpp"
#include "core/transport.hpp"
#include "tests/collectives/elements.hpp"
#include "tests/collectives/plans.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shardmark::test {

/// One rank of a tp-only world.
struct World {
  explicit World(Transport& its_transport)
      : transport{its_transport},
        mesh{{.tp = transport.size()}},
        group{mesh.group(transport.rank(), Axis::tp)},
        rank{transport.rank(), mesh, backend} {
    transport.set_wait_policy({.yield = true});
    transport.connect(group, Lane::tp);
  }
  Transport& transport;
  Mesh mesh;
  Group group;
  Arena arena{std::int64_t{64} << 20};
  Kernels kernels{1, arena};
  CpuBackend backend{transport, arena, kernels};
  Rank rank;
};

struct Case {
  Collective collective;
  std::string algorithm;  ///< or "native"
  DType dtype{DType::f32};
  Reduction reduction{Reduction::sum};
  int root{0};
  std::int64_t numel{1};
  bool in_place{false};
  std::vector<int> hosts;

  [[nodiscard]] std::string to_string() const {
    return std::string{name_of(collective)} + ' ' + algorithm + ' ' + std::string{name_of(dtype)} +
           ' ' + std::string{name_of(reduction)} + " root " + std::to_string(root) + " numel " +
           std::to_string(numel) + (in_place ? " in place" : "");
  }
};

inline bool can_be_in_place(Collective collective) {
  return collective != Collective::all_to_all && collective != Collective::all_to_all_v &&
         collective != Collective::barrier;
}

/// Uneven, with zero blocks.
inline std::vector<std::int64_t> uneven_counts(int n, std::int64_t numel) {
  std::vector<std::int64_t> counts;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      counts.push_back((from + 2 * to) % 3 == 0 ? 0 : numel + 5 * from + to);
  return counts;
}

/// The buffers of a call, filled.
class Buffers {
 public:
  Buffers(World& world, const Case& test, std::span<const std::int64_t> counts)
      : world_{world},
        me_{world.group.position},
        data_{test.collective, test.dtype, test.reduction, world.group.size,
              test.root,       test.numel, counts,         11},
        memory_{world.rank.allocate(
            Shape{std::max<std::int64_t>(1, data_.input_numel(me_) + data_.output_numel(me_))},
            test.dtype, Category::communication)} {
    const std::int64_t input = data_.input_numel(me_), output = data_.output_numel(me_);
    const bool together = test.in_place && input > 0 && output > 0;
    const std::int64_t own = me_ * test.numel;
    call_ = {test.collective, {}, {}, world.group, test.root, test.reduction, counts};
    if (input > 0) call_.x = part(together && output > input ? own : 0, input);
    if (output > 0) call_.y = part(!together ? input : input > output ? own : 0, output);
    if (input == 0) return;
    std::vector<std::byte> bytes(static_cast<std::size_t>(call_.x.bytes()));
    fill_exact(data_, me_, bytes.data());
    world.backend.write(call_.x, bytes.data());
  }

  [[nodiscard]] const Call& call() const { return call_; }

  [[nodiscard]] std::string problem() {
    if (data_.output_numel(me_) == 0) return {};
    std::vector<std::byte> bytes(static_cast<std::size_t>(call_.y.bytes()));
    world_.backend.read(call_.y, bytes.data());
    return check_exact(data_, me_, bytes.data()).to_string(data_.output_numel(me_));
  }

 private:
  [[nodiscard]] Tensor part(std::int64_t first, std::int64_t numel) const {
    return memory_.tensor().row_block(first, numel);
  }

  World& world_;
  int me_;
  ExactData data_;
  Buffer memory_;
  Call call_;
};

inline void run_case(World& world, const Case& test) {
  const std::vector<std::int64_t> counts = test.collective == Collective::all_to_all_v
                                               ? uneven_counts(world.group.size, test.numel)
                                               : std::vector<std::int64_t>{};
  Buffers buffers{world, test, counts};
  if (test.algorithm == "native") {
    world.rank.submit(native_op(buffers.call()), Lane::tp);
    world.rank.synchronize();
    EXPECT_EQ(buffers.problem(), "") << "rank " << world.rank.id() << ": " << test.to_string();
    return;
  }
  const Plan plan = make_plan(test.collective, test.algorithm, test.hosts, test.root);
  const std::int64_t numel = BoundPlan::scratch_numel(plan, buffers.call());
  const Buffer scratch = world.rank.allocate(Shape{std::max<std::int64_t>(numel, 1)}, test.dtype,
                                             Category::communication);
  const BoundPlan bound{plan, buffers.call(), numel > 0 ? scratch.tensor() : Tensor{}};
  const double before = world.transport.bytes_started();
  for (const Op& op : bound.ops()) world.rank.submit(op, Lane::tp);
  world.rank.synchronize();
  EXPECT_EQ(buffers.problem(), "") << "rank " << world.rank.id() << ": " << test.to_string();
  // The native formulas before left fractions.
  EXPECT_NEAR(world.transport.bytes_started() - before, static_cast<double>(bound.bytes_sent()),
              0.01)
      << test.to_string();
}

inline std::vector<Case> cases_of(Collective collective, const std::string& algorithm, int n) {
  std::vector<Case> cases;
  const auto layouts = layouts_for(algorithm, n);
  const auto add = [&](DType dtype, Reduction reduction, std::int64_t numel) {
    for (const bool in_place : {false, true}) {
      if (in_place && !can_be_in_place(collective)) continue;
      for (const int root : {0, n - 1}) {
        if (root > 0 && !facts_of(collective).has_root) continue;
        cases.push_back({collective, algorithm, dtype, reduction, root, numel, in_place,
                         layouts[cases.size() % layouts.size()]});
      }
    }
  };
  for (const std::int64_t numel : {1, 3, 7, 64, 1001}) add(DType::f32, Reduction::sum, numel);
  for (const DType dtype : all_dtypes) add(dtype, Reduction::sum, 100);
  if (facts_of(collective).has_reduction)
    for (const Reduction reduction :
         {Reduction::prod, Reduction::max, Reduction::min, Reduction::avg})
      for (const DType dtype : all_dtypes) add(dtype, reduction, 40);
  return cases;
}

/// Runs every case of every algorithm and the transport's own; failures go to GoogleTest.
inline void every_plan_is_exact(Transport& transport) {
  World world{transport};
  for (const Collective collective : all_collectives) {
    std::vector<std::string> algorithms{"native"};
    for (const std::string_view name : algorithm_names(collective)) algorithms.emplace_back(name);
    for (const std::string& algorithm : algorithms)
      for (const Case& test : cases_of(collective, algorithm, transport.size()))
        run_case(world, test);
  }
}

}  // namespace shardmark::test
