#include "bench/harness/run.hpp"

#include "bench/harness/csv_sinks.hpp"
#include "bench/harness/dry_run.hpp"
#include "bench/harness/dump.hpp"
#include "bench/harness/plan.hpp"
#include "bench/harness/predict.hpp"
#include "bench/harness/progress.hpp"
#include "bench/harness/run_json.hpp"
#include "bench/harness/summary.hpp"
#include "bench/harness/sweep.hpp"
#include "bench/harness/table.hpp"
#include "bench/harness/timeline.hpp"
#include "bench/harness/together.hpp"
#include "core/adaptors.hpp"
#include "core/host.hpp"
#include "core/launch.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

namespace shardmark::bench {
namespace {

/// Part of the memory that a case may take; the rest is for the system and the processes.
constexpr double usable_memory = 0.9;

/// A prediction has as many ranks as it takes.
int world_of(const Case& config, const Options& options, const Transport& transport) {
  return options.machine ? config.layer.parallel.num_ranks() : transport.size();
}

/// Rank 0: everything that keeps or shows rows. run.json comes last, so that its completion marker
/// is written after everything else.
Sinks make_sinks(const LayerBench& bench, const Options& options,
                 const std::vector<std::string>& command_line, const RunIdentity& identity,
                 const Transport& transport, const Sweep& sweep) {
  Sinks sinks;
  const std::string& folder = options.out;
  int largest_world = 1;
  for (const Case& config : sweep.cases)
    largest_world = std::max(largest_world, world_of(config, options, transport));
  if (!folder.empty()) {
    // results.csv last: --resume takes what it holds as finished.
    sinks.push_back(std::make_unique<KernelsCsv>(folder, identity, options.resume));
    sinks.push_back(std::make_unique<Timeline>(
        folder, options.machine ? "predicted" : identity.transport, largest_world));
    sinks.push_back(std::make_unique<ResultsCsv>(folder, identity, options.resume));
  }
  for (auto& sink : bench.show(options, transport, sweep)) sinks.push_back(std::move(sink));
  if (!folder.empty())
    sinks.push_back(
        std::make_unique<RunJson>(folder, provenance(command_line, options, identity, transport),
                                  options.resume, bench.summarize));
  return sinks;
}

/// Ranks by the memory that they share, and how much of it a case may take.
struct MemoryLimit {
  std::vector<Endpoint> places;
  std::int64_t bytes{0};
  std::string what{"host"};
};
/// Collective.
MemoryLimit memory_limit(Transport& transport, const Engine* engine) {
  if (engine == nullptr) return {};
  const Engine::Memory mine = engine->memory();
  const std::vector<std::string> names = transport.gather(mine.name, Transport::Waiting::idle);
  MemoryLimit limit{transport.endpoints(), 0, engine->backend_name() == "cuda" ? "GPU" : "host"};
  for (std::size_t rank = 0; rank < names.size(); ++rank) limit.places[rank].host = names[rank];
  const double least = -transport.maximum(-static_cast<double>(mine.bytes));
  limit.bytes = static_cast<std::int64_t>(usable_memory * least);
  return limit;
}

/// Leaves out cases that are done already and marks those that do not fit; rank 0 decides.
void settle(Sweep& sweep, const Options& options, const RunIdentity& identity, Transport& transport,
            const Engine* engine) {
  std::vector<Case>& cases = sweep.cases;
  const MemoryLimit limit = memory_limit(transport, engine);
  // One line per case: "-" when it is done already, otherwise "+" and the skip_reason.
  std::string decisions;
  on_rank_0(transport, [&] {
    if (engine != nullptr)
      skip_what_does_not_fit(cases, options.runner, limit.places, limit.bytes, limit.what);
    std::set<std::string> finished;
    if (options.resume) {
      finished = finished_rows(options.out, options.tool);
      check_source(options.out, identity);
    }
    std::size_t num_done = 0;
    for (const Case& config : cases) {
      const bool done = is_finished(config, finished, identity, options.runner,
                                    world_of(config, options, transport));
      num_done += done ? 1 : 0;
      decisions += done ? "-\n" : '+' + config.skip_reason + '\n';
    }
    sweep.num_finished = num_done;
    if (!options.resume) return;
    sweep.notices.push_back(message(num_done, " of ", cases.size(), " rows are in ", options.out,
                                    "/results.csv already"));
    if (std::string changed = changed_settings(options); num_done > 0 && !changed.empty())
      sweep.notices.push_back("those rows were measured with other settings: " + changed);
  });
  decisions = transport.broadcast(decisions, Transport::Waiting::idle);
  std::vector<Case> left;
  std::size_t first = 0;
  for (Case& config : cases) {
    const std::size_t end = decisions.find('\n', first);
    config.skip_reason = decisions.substr(first + 1, end - first - 1);
    if (decisions[first] == '+') left.push_back(std::move(config));
    first = end + 1;
  }
  cases = std::move(left);
}

Outcome skipped_row(const Case& config, const Options& options, int world_size) {
  Outcome row;
  row.result.config = config;
  row.result.status = Status::skipped;
  row.result.reason = config.skip_reason;
  row.result.world_size = world_size;
  row.result.replicated = options.runner.replicate;
  row.result.threads_per_rank = options.runner.threads_per_rank;
  row.result.check_mode = options.runner.check;
  return row;
}

std::string_view name_of(Status status) {
  return status == Status::ok ? "ok" : status == Status::skipped ? "skipped" : "failed";
}

struct Tally {
  int ok{0}, failed{0};
};

/// Measures a case, or predicts it.
using MakeRow = std::function<Outcome(const Case&)>;

/// Takes the cases one after another; every finished row is in all sinks before the next starts.
Tally make_rows(const Options& options, const std::vector<Case>& cases, const MakeRow& make_row,
                Transport& transport, const Sinks& sinks) {
  Tally tally;
  Progress progress{cases.size(), ::isatty(STDERR_FILENO) != 0};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& config = cases[i];
    const bool skipped = !config.skip_reason.empty();
    if (transport.rank() == 0 && !skipped) progress.start(i, describe(config));
    const Outcome row = skipped ? skipped_row(config, options, world_of(config, options, transport))
                                : make_row(config);
    on_rank_0(transport, [&] {
      progress.clear();
      for (const auto& sink : sinks) sink->add(row);
    });
    const std::string status = transport.broadcast(std::string{name_of(row.result.status)});
    if (status == "ok") ++tally.ok;
    if (status == "failed") ++tally.failed;
  }
  return tally;
}

void dump_all(const Options& options, const std::vector<Case>& cases, Runner& runner,
              Transport& transport) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& config = cases[i];
    const std::string folder = cases.size() == 1 ? options.dump : message(options.dump, "/row", i);
    if (config.skip_reason.empty()) dump(runner, config, options.runner, transport, folder);
    if (transport.rank() == 0)
      std::cout << describe(config) << ": "
                << (config.skip_reason.empty() ? folder + "/manifest.json"
                                               : "skipped: " + config.skip_reason)
                << std::endl;
  }
}

void finish(Transport& transport, const Sinks& sinks, bool complete) {
  on_rank_0(transport, [&] {
    for (const auto& sink : sinks) sink->finish(complete);
  });
}

/// Collective.
RunIdentity identity_of(const Options& options, const Engine* engine, Transport& transport) {
  RunIdentity run{make_run_id(), "record", "", options.tool};
  if (options.machine) run.machine = options.machine->name;
  if (engine == nullptr) return run;
  run.backend = engine->backend_name();
  run.transport = engine->transport_name();
  run.device = engine->device_name();
  run.devices = gather_facts(*engine, transport);
  return run;
}

/// With the device that was found in place of --backend auto.
Options settled(Options options, const Engine* engine) {
  if (engine != nullptr)
    options.runner.engine.backend =
        engine->backend_name() == "cuda" ? BackendKind::cuda : BackendKind::cpu;
  return options;
}

/// Ranks that wait give the core away when there are more of them than cores.
void set_waiting(Transport& transport, const Options& options) {
  const bool yield = is_oversubscribed(transport, options.runner.threads_per_rank);
  transport.set_wait_policy({.yield = yield, .timeout_s = options.timeout_s});
}

/// Every degree that the options name, whatever ranks there are.
Sweep expand_anywhere(Options options, int world_size) {
  options.tp = tp_degrees(options, world_size);
  return expand(options, std::numeric_limits<int>::max());
}

}  // namespace

LayerBench tensor_parallel_bench(const Options& options) {
  const auto show = [](const Options& given, const Transport& transport, const Sweep& sweep) {
    auto table = std::make_unique<Table>(std::cout, given.verbose);
    table->begin(given, transport, sweep.notices);
    Sinks sinks;
    sinks.push_back(std::move(table));
    sinks.push_back(std::make_unique<SummaryText>(std::cout, sweep.num_finished));
    return sinks;
  };
  const auto cases = [options](int world_size) {
    return options.machine ? expand_anywhere(options, world_size) : expand(options, world_size);
  };
  return {cases, show, [](std::span<const Result> results) { return summary_json(results); }};
}

std::unique_ptr<Engine> open_engine(const Options& options, Transport& transport) {
  if (options.machine) return nullptr;
  EngineOptions engine = options.runner.engine;
  engine.threads_per_rank = options.runner.threads_per_rank;
  return open_engine(engine, transport);
}

int run_dry(const Options& options, int world_size) {
  return dry_run(std::cout, options, expand_anywhere(options, world_size)) ? 0 : 1;
}

int run(const LayerBench& bench, const Options& given, const std::vector<std::string>& command_line,
        Transport& transport, Engine* engine) {
  const Options options = settled(given, engine);
  if (!options.runner.fault.empty()) check_fault(parse_fault(options.runner.fault), transport);
  if (options.machine && transport.size() > 1)
    throw InputError{message("--predict needs no ranks, but ", transport.size(),
                             " were started; start it without the launcher")};
  Sweep sweep = bench.expand(
      options.machine ? static_cast<int>(options.machine->ranks_per_node.value) : transport.size());
  set_waiting(transport, options);
  const RunIdentity identity = identity_of(options, engine, transport);
  if (!options.out.empty())
    on_rank_0(transport, [&] {
      prepare_folder(options.out, options.resume,
                     {"run.json", "results.csv", "kernels.csv", "trace.json", "trace.json.gz"});
    });
  settle(sweep, options, identity, transport, engine);
  Sinks sinks;
  if (options.dump.empty())
    on_rank_0(transport, [&] {
      sinks = make_sinks(bench, options, command_line, identity, transport, sweep);
    });
  std::optional<Runner> runner;
  if (engine != nullptr) runner.emplace(options.runner, transport, *engine);
  if (!options.dump.empty()) {
    dump_all(options, sweep.cases, *runner, transport);
    return 0;
  }
  const auto make_row = [&](const Case& config) {
    if (runner) return runner->run(config);
    if (options.runner.interrupted && options.runner.interrupted()) throw Interrupted{};
    return predict_row(config, *options.machine, options.runner);
  };
  Tally tally;
  try {
    tally = make_rows(options, sweep.cases, make_row, transport, sinks);
  } catch (const Interrupted&) {
    finish(transport, sinks, false);
    throw;
  }
  finish(transport, sinks, true);
  if (tally.failed > 0) return 1;
  return tally.ok == 0 && !sweep.cases.empty() ? 2 : 0;
}

}  // namespace shardmark::bench
