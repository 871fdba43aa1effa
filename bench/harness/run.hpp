#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "bench/harness/sweep.hpp"
#include "core/transport.hpp"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench {

using Sinks = std::vector<std::unique_ptr<ResultSink>>;

/// What a program adds to the run that all of them share.
struct LayerBench {
  /// For a prediction `world_size` only says which degrees are meant when none are given.
  std::function<Sweep(int world_size)> expand;
  /// On rank 0: makes what shows the rows on stdout, and prints its head.
  std::function<Sinks(const Options&, const Transport&, const Sweep&)> show;
  /// The "summary" of run.json.
  std::function<nlohmann::ordered_json(std::span<const Result>)> summarize;
};

/// Measures, predicts or dumps everything the options ask for on this rank and returns the exit
/// code, the same on all ranks: 0, 1 when a row failed, 2 when no row could run. Throws InputError
/// before anything is measured, Error when results cannot be kept. `Interrupted` passes through
/// after the finished rows are safe. Collective.
/// `engine` is null for a prediction.
[[nodiscard]] int run(const LayerBench& bench, const Options& options,
                      const std::vector<std::string>& command_line, Transport& transport,
                      Engine* engine);
/// What the options ask to compute on; null for a prediction. Collective.
[[nodiscard]] std::unique_ptr<Engine> open_engine(const Options& options, Transport& transport);

/// shardmark-tp.
[[nodiscard]] LayerBench tensor_parallel_bench(const Options& options);
/// Prints what `--dry-run` of shardmark-tp shows and returns the exit code. `world_size` only says
/// which degrees are meant when --tp was not given.
[[nodiscard]] int run_dry(const Options& options, int world_size);

}  // namespace shardmark::bench
