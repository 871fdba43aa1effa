#pragma once

#include "bench/analyze/flops.hpp"
#include "bench/harness/verdict.hpp"
#include "profiler/analyse.hpp"
#include "profiler/communication.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::bench::analyze {

/// --steps: which of the steps are looked at.
struct StepChoice {
  enum class Kind : std::uint8_t {
    all,      ///< the whole trace, and each step
    none,     ///< the whole trace only
    last,     ///< the last `num_last` steps
    numbers,  ///< those whose number is in `ranges`
  };
  Kind kind{Kind::all};
  int num_last{0};
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  ///< first and last number, both in it
  std::string text{"all"};                                    ///< as given

  /// The trace is cut to the chosen steps.
  [[nodiscard]] bool cuts() const { return kind == Kind::last || kind == Kind::numbers; }
};

/// Everything the command line says.
struct Options {
  std::vector<std::string> inputs;
  bool diff{false};
  CommRule rule{CommRule::automatic};
  std::vector<std::string> comm_patterns;
  std::map<std::string, std::string> axis_of;  ///< name of a group -> tp, pp, dp, cp or ep
  StepChoice steps;
  std::optional<Span> window;  ///< from the first device work of any rank, nanoseconds
  std::string range;           ///< name of host ranges, or empty
  WorkOfStep work;
  int num_devices{0};  ///< that share the FLOPs; 0: the ranks of the world
  VerdictThresholds thresholds;
  std::string csv, json, out, merged_trace;
  int top{10};
  int threads{0};  ///< 0: the cores

  /// Text to print instead of analysing anything.
  std::string print;

  /// What is looked at is less than the whole trace.
  [[nodiscard]] bool cuts() const { return steps.cuts() || window || !range.empty(); }
};

/// Reads the arguments (without the program's name). Throws InputError naming the option, the
/// value, the rule and what would work.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// Throws InputError where options contradict each other, or one would do nothing. `arguments`: as
/// parse_options has them.
void check_together(const Options& options, const std::vector<std::string>& arguments);

/// "auto", "nccl" or "wide".
[[nodiscard]] std::string_view name_of(CommRule rule);

}  // namespace shardmark::bench::analyze
