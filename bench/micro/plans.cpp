// Plans for many ranks: made, validated and bound to ops, rank by rank as the ranks would.

#include "collectives/plan.hpp"
#include "core/host.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

namespace shardmark::micro {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Eight ranks per host.
void plan(benchmark::State& state, Collective collective, const std::string& algorithm) {
  const int num_ranks = static_cast<int>(state.range(0));
  std::vector<int> hosts;
  for (int rank = 0; rank < num_ranks; ++rank) hosts.push_back(rank / 8);
  const bool grows = facts_of(collective).output_has_n_blocks,
             shrinks = facts_of(collective).input_has_n_blocks;
  const std::int64_t small = 1024, large = small * num_ranks;
  const Tensor x{1, DType::f32, Shape{shrinks ? large : small * (grows ? 1 : num_ranks)},
                 0, large,      nullptr};
  const Tensor y{2, DType::f32, Shape{grows ? large : small * (shrinks ? 1 : num_ranks)},
                 0, large,      nullptr};
  double make_s = 0, validate_s = 0, bind_s = 0, num_steps = 0, num_ops = 0;
  for (auto _ : state) {
    auto begin = std::chrono::steady_clock::now();
    const Plan made = make_plan(collective, algorithm, hosts);
    make_s = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    if (!validate(made).empty()) state.SkipWithError("not valid");
    validate_s = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    num_ops = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Group group{Axis::tp, 0, 1, num_ranks, rank};
      const Call call{collective, x, y, group, 0, Reduction::sum};
      const Tensor scratch{3, DType::f32, Shape{BoundPlan::scratch_numel(made, call)},
                           0, 1,          nullptr};
      num_ops += static_cast<double>(BoundPlan{made, call, scratch}.ops().size());
    }
    bind_s = seconds_since(begin);
    num_steps = static_cast<double>(made.steps.size());
  }
  state.counters["steps"] = num_steps;
  state.counters["ops"] = num_ops;
  state.counters["make_s"] = make_s;
  state.counters["validate_s"] = validate_s;
  state.counters["bind_s"] = bind_s;
  // Of the process so far.
  state.counters["peak_resident_bytes"] = static_cast<double>(memory_peak_resident_bytes());
}

const bool added = [] {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::all_to_all}) {
      if (!algorithm.supports(collective)) continue;
      const std::string name{algorithm.name};
      benchmark::RegisterBenchmark(
          ("plan/" + std::string{name_of(collective)} + '/' + name).c_str(),
          [collective, name](benchmark::State& state) { plan(state, collective, name); })
          ->ArgName("ranks")
          ->Arg(1024)
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace shardmark::micro
