#pragma once

#include "bench/collectives/row.hpp"
#include "bench/harness/engine.hpp"
#include "bench/harness/launch.hpp"
#include "core/mesh.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// -a: which rank's time a sample is.
enum class Scope : std::uint8_t { rank_0, average, minimum, maximum };
[[nodiscard]] std::string_view name_of(Scope scope);

/// Everything the command line says.
struct Options {
  std::vector<Collective> collectives;

  // As in nccl-tests.
  std::int64_t min_bytes{std::int64_t{32} << 20U}, max_bytes{std::int64_t{32} << 20U};
  std::int64_t step_bytes{std::int64_t{1} << 20U};
  double step_factor{0};  ///< 0: steps of step_bytes
  int iterations{0};      ///< samples; 0: the stop rule decides
  int warmup{5};
  int aggregate{1};  ///< least back-to-back calls of a sample
  int checks{1};     ///< -c: results are compared unless it is 0
  std::vector<Reduction> reductions{Reduction::sum};
  std::vector<DType> dtypes{DType::f32};
  int root{0};
  Scope scope{Scope::maximum};
  bool blocking{false};

  // Algorithms.
  std::vector<std::string> algorithms{"native"};  ///< names, "auto" and "all" included
  std::string plan_file, tuning_file, svg_file, tune_file;
  std::string tuning_text;  ///< the table itself, where a first pass made it
  bool print_plan{false};
  std::optional<Pattern> pattern;  ///< of send_recv; nothing: ring

  // Groups and start.
  std::optional<Mesh::Degrees> groups;
  std::optional<Axis> axis;  ///< nothing: tp
  std::optional<TransportKind> transport;
  EngineOptions engine;
  std::optional<int> ranks;

  // Measurement.
  int min_samples{10};
  double max_time_s{0.3};
  double timeout_s{120};
  bool in_place{true};
  bool waits{true};
  double skew_us{0};
  int skew_rank{-1};                 ///< -1: the last one
  std::vector<std::int64_t> matmul;  ///< M, N, K of --with-matmul, or nothing
  bool progress_thread{false};       ///< --progress thread
  std::string fault;                 ///< testing: spec of core/adaptors

  // Output.
  std::string out;
  bool resume{false}, percentiles{false}, dry_run{false};
  std::vector<std::string> import_files;

  /// Text to print instead of running anything.
  std::string print;
};

/// Reads the arguments (without the program's name). Throws InputError naming the option, the
/// value, the rule and what would work.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);
/// auto's table is made in a first pass of the same run: --tune without --tuning.
[[nodiscard]] bool tunes_first(const Options& options);
/// Several collectives, types, reductions or algorithms: what does not exist is then a row.
[[nodiscard]] bool is_sweep(const Options& options);
/// The requested sizes in bytes, ascending. Throws InputError on sizes that do not make a sweep.
[[nodiscard]] std::vector<std::int64_t> sizes_of(const Options& options);
[[nodiscard]] LaunchRequest launch_request(const Options& options);

/// "8", "64K", "1.5M", "2G" (1024-based) as bytes. Throws InputError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view option, std::string_view text);
/// "tp=4,dp=2". Throws InputError.
[[nodiscard]] Mesh::Degrees parse_groups(std::string_view option, std::string_view text);

}  // namespace shardmark::bench::collectives
