// What the interpreter of a pipeline adds to each action: walking down the plan, naming scopes,
// fences and messages. The stages in the middle have no blocks here, so nothing else is submitted,
// and nothing runs.

#include "core/record/backend.hpp"
#include "layers/pipeline/generate.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/pipeline_program.hpp"

#include <benchmark/benchmark.h>

namespace shardmark::micro {
namespace {

void interpret(benchmark::State& state, pipeline::ScheduleKind kind) {
  constexpr int ranks = 4, me = 1;
  const auto schedule = std::make_shared<const pipeline::Schedule>(pipeline::lower(
      pipeline::generate(kind, {.ranks = ranks, .micro = 32}), pipeline::Lowering::split));
  const auto stages = static_cast<std::size_t>(schedule->num_stages);
  LayerConfig config;
  config.block = BlockKind::model;
  config.parallel.pp.size = ranks;
  config.parallel = config.parallel.at(0, me);
  config.pipeline = {.schedule_name = schedule->name,
                     .micro = schedule->num_micro,
                     .schedule = schedule,
                     .blocks = std::vector<std::int64_t>(stages, 0)};
  RecordBackend backend;
  Rank rank{me, Mesh{{.pp = ranks}}, backend};
  const auto program = make_pipeline_program(rank, config);
  int num_actions = 0;
  for (const pipeline::Step& step : schedule->ranks[me])
    for_each_action(step, [&](const pipeline::Action&) { ++num_actions; });
  for (auto _ : state) program->step();
  state.counters["per_action"] = benchmark::Counter{
      static_cast<double>(num_actions),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

BENCHMARK_CAPTURE(interpret, one_f_one_b, pipeline::ScheduleKind::one_f_one_b);
BENCHMARK_CAPTURE(interpret, zb_h2, pipeline::ScheduleKind::zb_h2);

}  // namespace
}  // namespace shardmark::micro
