// shardmark-tp: times tensor-parallel transformer layers. Options in, cases out of them, one Runner
// per rank, one Result per case, and sinks that keep and show it (bench/harness/run.cpp).

#include "bench/harness/measure.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/run.hpp"
#include "core/host.hpp"
#include "core/launch.hpp"

#include <csignal>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace shardmark;
using namespace shardmark::bench;

#ifdef SHARDMARK_HAVE_MPI
constexpr bool have_mpi = true;
#else
constexpr bool have_mpi = false;
#endif

/// What one rank does with parsed options; returns the exit code, the same on all ranks.
int run_rank(Options options, const std::vector<std::string>& command_line, Transport& transport,
             const InterruptFlag& interrupt) {
  options.runner.interrupted = [&interrupt] { return interrupt.is_set(); };
  try {
    return run(options, command_line, transport);
  } catch (const Interrupted&) {
    if (transport.rank() == 0)
      std::cerr << "shardmark: interrupted; finished rows are kept"
                << (options.out.empty() ? "" : " in " + options.out) << std::endl;
    return interrupt.is_set() ? interrupt.exit_code() : 128 + SIGINT;
  }
}

/// Options that need no ranks: true if `exit_code` says it all.
bool answer_alone(const Options& options, int world_size, bool is_first, int& exit_code) {
  if (options.print.empty() && !options.dry_run) return false;
  if (!is_first) return true;
  if (options.print.empty())
    exit_code = run_dry(options, world_size);
  else
    std::cout << options.print << std::flush;
  return true;
}

int run_program(int argc, char** argv) {
  const std::vector<std::string> command_line{argv, argv + argc};
  const std::vector<std::string> arguments{command_line.begin() + 1, command_line.end()};
  const std::string launcher = detect_launcher();
  int exit_code = 0;
  const auto parse_and_run = [&](Transport& transport, const InterruptFlag& interrupt) {
    const Options options = parse_options(arguments);
    (void)plan_launch(options, launcher, have_mpi);
    if (answer_alone(options, transport.size(), transport.rank() == 0, exit_code)) return;
    const int code = run_rank(options, command_line, transport, interrupt);
    if (transport.rank() == 0 || transport.name() == "mpi") exit_code = code;
  };
  // Under a launcher even the options are read inside the job, so that an error is printed once.
  if (!launcher.empty() && have_mpi) {
    const InterruptFlag interrupt;
    const int job_code = run_mpi(argc, argv, [&](Transport& t) { parse_and_run(t, interrupt); });
    return job_code != 0 ? job_code : exit_code;
  }
  const Options options = parse_options(arguments);
  const LaunchPlan plan = plan_launch(options, launcher, have_mpi);
  if (answer_alone(options, plan.ranks, true, exit_code)) return exit_code;
  const InterruptFlag interrupt;
  const auto body = [&](Transport& transport) {
    const int code = run_rank(options, command_line, transport, interrupt);
    if (transport.rank() == 0) exit_code = code;
  };
  if (plan.transport == TransportKind::mpi) {
    const int job_code = run_mpi(argc, argv, body);
    return job_code != 0 ? job_code : exit_code;
  }
  run_threads(plan.ranks, body);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::run_main([&] { return run_program(argc, argv); });
}
