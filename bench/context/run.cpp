#include "bench/context/run.hpp"

#include "bench/context/advice.hpp"
#include "bench/context/sweep.hpp"
#include "bench/context/table.hpp"
#include "bench/harness/dry_run.hpp"
#include "bench/harness/run.hpp"
#include "core/launch.hpp"

#include <nlohmann/json.hpp>

#include <iostream>
#include <optional>

namespace shardmark::bench::context {
namespace {

/// Compares what the rates said about the cases with what they took.
struct Expectation {
  MachineRates rates;
  std::vector<Advice> advice;

  [[nodiscard]] std::vector<Advice> with(std::span<const Result> results) const {
    std::vector<Advice> compared = advice;
    add_measured(compared, results);
    return compared;
  }
};

/// Prints the advice after the last row.
class AdviceText final : public ResultSink {
 public:
  AdviceText(std::ostream& out, const std::optional<Expectation>& expectation)
      : out_{out}, expectation_{expectation} {}
  void add(const Outcome& row) override { results_.push_back(row.result); }
  void finish(bool) override {
    if (expectation_) print(out_, expectation_->rates, expectation_->with(results_));
  }

 private:
  std::ostream& out_;
  const std::optional<Expectation>& expectation_;
  std::vector<Result> results_;
};

/// On rank 0 complete.
std::optional<Expectation> expect(const Options& options, Transport& transport, Engine& engine) {
  const Sweep sweep = expand(options, transport.size());
  if (!needs_rates(sweep)) return std::nullopt;
  Expectation expectation{measure_rates(transport, options.base.runner, sweep, engine), {}};
  if (transport.rank() == 0) expectation.advice = advise(sweep.cases, expectation.rates);
  return expectation;
}

int run_advice(const Options& options, Transport& transport, Engine& engine) {
  const auto expectation = expect(options, transport, engine);
  if (!expectation)
    throw InputError{message("--advise needs a split sequence, but ", transport.size(),
                             transport.size() == 1 ? " rank splits" : " ranks split",
                             " none; start more (mpirun -n 2, or --ranks 2 with --transport "
                             "threads), with --cp above 1")};
  if (transport.rank() == 0) print(std::cout, expectation->rates, expectation->advice);
  return 0;
}

}  // namespace

int run_dry(const Options& options, int world_size) {
  const Sweep sweep = expand(options, world_size, false);
  return dry_run(std::cout, options.base, sweep) ? 0 : 1;
}

int run(const Options& options, const std::vector<std::string>& command_line,
        Transport& transport) {
  const bench::Options& base = options.base;
  const bool yield = is_oversubscribed(transport, base.runner.threads_per_rank);
  transport.set_wait_policy({.yield = yield, .timeout_s = base.timeout_s});
  const std::unique_ptr<Engine> engine = open_engine(base, transport);
  if (options.advise) return run_advice(options, transport, *engine);
  std::optional<Expectation> expectation;
  if (base.dump.empty() && engine) expectation = expect(options, transport, *engine);
  LayerBench bench;
  bench.expand = [&options](int world_size) {
    return expand(options, world_size, !options.base.machine);
  };
  bench.show = [&](const bench::Options& given, const Transport& ranks, const Sweep& sweep) {
    auto table = std::make_unique<Table>(std::cout, given.verbose);
    table->begin(given, ranks, sweep.notices);
    Sinks sinks;
    sinks.push_back(std::move(table));
    sinks.push_back(std::make_unique<AdviceText>(std::cout, expectation));
    return sinks;
  };
  bench.summarize = [&](std::span<const Result> results) {
    if (!expectation) return nlohmann::ordered_json::object();
    return to_json(expectation->rates, expectation->with(results));
  };
  return bench::run(bench, base, command_line, transport, engine.get());
}

}  // namespace shardmark::bench::context
