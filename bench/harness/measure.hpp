#pragma once

#include "bench/harness/engine.hpp"
#include "bench/harness/result.hpp"
#include "bench/harness/verdict.hpp"
#include "collectives/run.hpp"
#include "core/error.hpp"
#include "core/transport.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace shardmark::bench {

/// How configurations are measured. Equal on all ranks.
struct RunnerOptions {
  int threads_per_rank{1};
  EngineOptions engine{};  ///< its threads_per_rank is set from the one above
  int warmup{2};           ///< least untimed iterations; more until times settle, at most 10x
  int min_samples{10};
  double max_time_s{5.0};  ///< samples of one row stop here even if the interval is still wide
  CheckMode check{CheckMode::reduced};
  std::uint64_t seed{1};
  double peak_tflops{0};  ///< of one rank; 0: measure
  bool replicate{false};  ///< fill idle ranks with replicas
  VerdictThresholds thresholds{};
  PlanChoice plans{};     ///< collectives by our own algorithms
  std::string fault{};    ///< testing: spec of core/adaptors FaultBackend, empty = none
  bool check_nan{false};  ///< testing: wrap the backend in the NaN check for one iteration
  std::function<bool()> interrupted;  ///< polled between samples; empty = never
};

/// Thrown on every rank when one of them was interrupted (Ctrl-C); finished rows stay.
class Interrupted : public Error {
 public:
  Interrupted() : Error{"interrupted"} {}
};

struct Outcome {
  Result result;                  ///< complete on rank 0
  std::vector<RankTrace> traces;  ///< on rank 0, one per rank of the case
};

/// Runs configurations on one rank of the world. All ranks call the same functions with the same
/// arguments (collective), ranks outside of a case wait or run a replica.
class Runner {
 public:
  /// Both must outlive the runner; memory comes with the cases.
  Runner(RunnerOptions options, Transport& transport, Engine& engine)
      : options_{std::move(options)}, transport_{transport}, engine_{engine} {}

  /// Checks, warms up, samples, profiles one configuration that can run. A failed check becomes a
  /// row; PeerError, Interrupted and bugs are thrown.
  [[nodiscard]] Outcome run(const Case& config);

  /// Runs one forward and backward of `config` on random data, then `visit` on the ranks that take
  /// part (for --dump).
  void visit_program(const Case& config,
                     const std::function<void(Rank&, const LayerProgram&)>& visit);

 private:
  class Measurement;
  RunnerOptions options_;
  Transport& transport_;
  Engine& engine_;
};

/// LayerConfig of `config` as rank `rank` of the world runs it; tp.size 0 when the rank idles.
[[nodiscard]] LayerConfig config_of_rank(const Case& config, int rank, int world_size,
                                         bool replicate);

}  // namespace shardmark::bench
