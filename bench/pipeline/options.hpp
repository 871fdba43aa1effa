#pragma once

#include "bench/harness/options.hpp"
#include "layers/pipeline/generate.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// How blocks become stages: as many for each, by measured cost, or as --split says.
enum class Balance : std::uint8_t { count, measured, given };
enum class Mode : std::uint8_t { train, infer };
enum class PrintAs : std::uint8_t { grid, csv, svg };

/// A schedule that --schedule-file brought: valid, compute only or lowered.
struct ScheduleFile {
  std::string name;  ///< without its folder
  pipeline::Schedule schedule;
};

/// Everything the command line of shardmark-pp says; `base` is what it shares with shardmark-tp.
/// Lists are axes of the sweep, all with a value unless said otherwise.
struct Options {
  bench::Options base;

  std::vector<pipeline::ScheduleKind> kinds;  ///< empty: only the file
  std::shared_ptr<const ScheduleFile> file;   ///< or none
  std::vector<int> pp;      ///< empty: all ranks / (tp x dp), or what the file is for
  std::vector<int> chunks;  ///< 0: as many as the schedule has by itself
  std::vector<int> micro, dp{1};
  std::vector<pipeline::Lowering> p2p;  ///< empty: split, or what the file says
  std::vector<std::int64_t> split;      ///< of Balance::given
  std::vector<Balance> balance;
  std::vector<Recompute> recompute;
  bool tie_embeddings{false};

  Mode mode{Mode::train};
  std::vector<InferenceStep> steps;  ///< of Mode::infer
  int tokens{0};                     ///< of Mode::infer: decode steps of a request in an iteration
  bool fit{false};      ///< zero-bubble schedules: for measured times instead of equal ones
  int memory_limit{0};  ///< of them: activations of a rank; 0: each schedule's own

  std::optional<PrintAs> print;  ///< schedules instead of a run
};

/// Reads the arguments (without the program's name). Throws InputError naming the option, the
/// value, the rule and what would work.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// The pipeline degrees for tp x dp of `world_size` ranks.
[[nodiscard]] std::vector<int> pp_degrees(const Options& options, int tp, int dp, int world_size);

/// How the options want the program to be started.
[[nodiscard]] LaunchRequest launch_request(const Options& options);

}  // namespace shardmark::bench::pp
