#include "bench/pipeline/run.hpp"

#include "bench/harness/dry_run.hpp"
#include "bench/harness/run.hpp"
#include "bench/harness/together.hpp"
#include "bench/pipeline/gain.hpp"
#include "bench/pipeline/inference.hpp"
#include "bench/pipeline/print.hpp"
#include "bench/pipeline/sweep.hpp"
#include "bench/pipeline/table.hpp"
#include "core/launch.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

namespace shardmark::bench::pp {
namespace {

bool needs_times(const Options& options) {
  return options.fit ||
         std::ranges::find(options.balance, Balance::measured) != options.balance.end();
}

std::vector<Rebalanced> rebalanced_cases(const Sweep& sweep, const MeasuredTimes& times) {
  std::vector<Rebalanced> changes;
  for (const Case& made : sweep.cases)
    if (made.skip_reason.empty() && made.balance == "measured")
      changes.push_back(rebalanced(made, times.at(cost_key(made)).costs()));
  return changes;
}

template <class AnyTable>
Sinks show(const bench::Options& options, const Transport& transport, const Sweep& rows) {
  auto table = std::make_unique<AnyTable>(std::cout, options.verbose);
  table->begin(options, transport, rows.notices);
  Sinks sinks;
  sinks.push_back(std::move(table));
  sinks.push_back(std::make_unique<GainText>(std::cout));
  return sinks;
}

}  // namespace

int run_dry(const Options& options, int world_size) {
  Sweep sweep = expand(options, world_size, false);
  if (needs_times(options))
    sweep.notices.emplace_back(
        "--dry-run measures nothing: --balance measured is as by count, --fit for equal times");
  return dry_run(std::cout, options.base, sweep) ? 0 : 1;
}

int run(const Options& options, const std::vector<std::string>& command_line,
        Transport& transport) {
  const bench::Options& base = options.base;
  const bool yield = is_oversubscribed(transport, base.runner.threads_per_rank);
  transport.set_wait_policy({.yield = yield, .timeout_s = base.timeout_s});
  const std::unique_ptr<Engine> engine = open_engine(base, transport);
  const int world_size =
      base.machine ? static_cast<int>(base.machine->ranks_per_node.value) : transport.size();
  Sweep sweep = expand(options, world_size, !base.machine);
  std::vector<Rebalanced> changes;
  if (needs_times(options)) {
    const MeasuredTimes times = measure_times(transport, base.runner, sweep, *engine);
    sweep = expand(options, transport.size(), true, times);
    if (options.print) {
      on_rank_0(transport,
                [&] { std::cout << print_schedules(options, sweep, times) << std::flush; });
      return 0;
    }
    changes = rebalanced_cases(sweep, times);
    for (const auto& [key, parts] : times) sweep.notices.push_back(to_text(parts));
    for (const Rebalanced& change : changes) sweep.notices.push_back(to_text(change));
  }
  LayerBench bench;
  bench.expand = [&sweep](int) { return sweep; };
  bench.show = options.mode == Mode::infer ? show<InferenceTable> : show<Table>;
  bench.summarize = [&changes](std::span<const Result> results) {
    auto summary = nlohmann::ordered_json::object();
    if (!changes.empty()) summary["balance"] = to_json(changes);
    if (const auto comparisons = compare_tp_with_pp(results); !comparisons.empty())
      summary["tp_against_pp"] = to_json(comparisons);
    if (const auto gains = measured_gains(results); !gains.empty())
      summary["balance_measured"] = to_json(gains);
    return summary;
  };
  return bench::run(bench, base, command_line, transport, engine.get());
}

}  // namespace shardmark::bench::pp
