#pragma once

#include "bench/harness/launch.hpp"
#include "bench/harness/measure.hpp"
#include "bench/harness/tool.hpp"
#include "layers/recording.hpp"
#include "sim/hardware.hpp"

#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Everything the command line says. Lists are axes of the sweep; an empty list or optional means
/// that the option was not given, so the model's value or the default holds.
struct Options {
  Tool tool{Tool::tp};

  // Shapes.
  std::vector<std::string> models;
  std::vector<BlockKind> blocks{BlockKind::block};
  std::vector<std::int64_t> hidden, heads, kv_heads, ffn, vocab, layers, seq, batch;
  std::optional<MlpKind> mlp;
  std::optional<GeluKind> gelu;
  std::optional<NormKind> norm;
  std::optional<Positions> positions;
  std::optional<bool> biases, causal;
  std::vector<DType> dtypes{DType::f32};

  // Parallelism.
  std::vector<int> tp;
  std::vector<bool> sequence_parallel{false}, overlap{false};
  int overlap_chunks{4};
  bool keep_gathered{false}, gather_output{true};
  std::optional<TransportKind> transport;
  std::optional<int> ranks;

  // Measurement.
  std::vector<Phase> phases{Phase::step};
  RunnerOptions runner;
  double timeout_s{120};

  // Prediction.
  std::optional<Machine> machine;  ///< predict for it instead of measuring
  std::string calibrate;           ///< folder of a run to make a machine file of
  std::string machine_name{"calibrated"};

  // Output.
  std::string out, dump;
  bool resume{false}, dry_run{false}, verbose{false};

  /// Text to print instead of running anything: help, version, list of models.
  std::string print;
};

/// Reads the arguments (without the program's name). Throws InputError naming the option, the
/// value, the rule and what would work.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// Throws InputError when options that all programs have contradict each other.
void check_contradictions(const Options& options);

/// The machine file that --calibrate prints. Throws InputError naming what the run lacks.
[[nodiscard]] std::string calibrated_machine(const Options& options);

/// The degrees of `--tp`, ascending; when it was not given: 1, 2, 4, ... and `world_size`.
[[nodiscard]] std::vector<int> tp_degrees(const Options& options, int world_size);

/// How the options want the program to be started.
[[nodiscard]] LaunchRequest launch_request(const Options& options);

}  // namespace shardmark::bench
