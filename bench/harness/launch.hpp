#pragma once

#include "core/launch.hpp"
#include "core/transport.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench {

enum class TransportKind : std::uint8_t { threads, mpi };

/// What the options of a program say about how it starts.
struct LaunchRequest {
  std::string program;  ///< its name, for messages
  std::optional<TransportKind> transport;
  std::optional<int> ranks;
  int default_ranks{1};  ///< ranks as threads when `ranks` is not given
};

/// Which transport to use and how many ranks to start with `threads`. `launcher` is what
/// detect_launcher says. Throws InputError when the request contradicts it or MPI is not built in.
struct LaunchPlan {
  TransportKind transport{TransportKind::threads};
  int ranks{1};
};
[[nodiscard]] LaunchPlan plan_launch(const LaunchRequest& request, const std::string& launcher,
                                     bool have_mpi);

/// Threads of one process beyond this many only wait for each other; --ranks asks for more.
[[nodiscard]] int default_ranks();

/// A program whose options have been read.
struct PreparedProgram {
  LaunchRequest launch;
  std::string out;  ///< folder of the results, for the message after an interrupt
  /// What needs no ranks; returns the exit code, or nothing to run the ranks. Called with the
  /// number of ranks; only the first rank's answer is given.
  std::function<std::optional<int>(int world_size, bool is_first)> answer_alone;
  /// One rank's work; returns the exit code, the same on all ranks.
  std::function<int(Transport&, const InterruptFlag&)> run;
};
/// Reads the options with `prepare` and runs the program as threads or under a launcher; returns
/// the exit code. Under a launcher even the options are read inside the job, so that an error is
/// printed once.
[[nodiscard]] int launch_program(
    int argc, char** argv,
    const std::function<PreparedProgram(const std::vector<std::string>& arguments)>& prepare);

}  // namespace shardmark::bench
