#include "bench/harness/launch.hpp"

#include "bench/harness/measure.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

#include <algorithm>
#include <csignal>
#include <iostream>

namespace shardmark::bench {
namespace {

#ifdef SHARDMARK_HAVE_MPI
constexpr bool built_with_mpi = true;
#else
constexpr bool built_with_mpi = false;
#endif

int run_rank(const PreparedProgram& program, Transport& transport, const InterruptFlag& interrupt) {
  try {
    return program.run(transport, interrupt);
  } catch (const Interrupted&) {
    if (transport.rank() == 0)
      std::cerr << "shardmark: interrupted; finished rows are kept"
                << (program.out.empty() ? "" : " in " + program.out) << std::endl;
    return interrupt.is_set() ? interrupt.exit_code() : 128 + SIGINT;
  }
}

}  // namespace

int default_ranks() {
  constexpr int most = 8;
  return std::min(cores_available(), most);
}

LaunchPlan plan_launch(const LaunchRequest& request, const std::string& launcher, bool have_mpi) {
  const bool launched = !launcher.empty();
  if (launched && request.transport == TransportKind::threads)
    throw InputError{message("--transport threads under ", launcher,
                             " would run independent copies of the program; leave out --transport "
                             "threads, or start without the launcher and use --ranks N")};
  if (launched && !have_mpi)
    throw InputError{message("started by ", launcher,
                             ", but this program was built without MPI, so every process would "
                             "measure alone; rebuild with MPI (Debian: libmpich-dev), or start "
                             "without the launcher and use --transport threads --ranks N")};
  if (launched || request.transport == TransportKind::mpi) {
    if (!have_mpi)
      throw InputError{
          "--transport mpi: this program was built without MPI; rebuild with MPI "
          "(Debian: libmpich-dev) or use --transport threads"};
    if (request.ranks)
      throw InputError{message("--ranks ", *request.ranks,
                               " is for --transport threads; with mpi the launcher decides: mpirun "
                               "-n ",
                               *request.ranks, ' ', request.program, " ...")};
    return {TransportKind::mpi, 1};
  }
  return {TransportKind::threads,
          request.ranks.value_or(is_single_launched() ? 1 : request.default_ranks)};
}

int launch_program(
    int argc, char** argv,
    const std::function<PreparedProgram(const std::vector<std::string>& arguments)>& prepare) {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  const std::string launcher = detect_launcher();
  int exit_code = 0;
  const auto parse_and_run = [&](Transport& transport, const InterruptFlag& interrupt) {
    const PreparedProgram program = prepare(arguments);
    (void)plan_launch(program.launch, launcher, built_with_mpi);
    if (const auto code = program.answer_alone(transport.size(), transport.rank() == 0)) {
      exit_code = *code;
      return;
    }
    exit_code = run_rank(program, transport, interrupt);
  };
  if (!launcher.empty() && built_with_mpi) {
    const InterruptFlag interrupt;
    const int job_code = run_mpi(argc, argv, [&](Transport& t) { parse_and_run(t, interrupt); });
    return job_code != 0 ? job_code : exit_code;
  }
  const PreparedProgram program = prepare(arguments);
  const LaunchPlan plan = plan_launch(program.launch, launcher, built_with_mpi);
  if (const auto code = program.answer_alone(plan.ranks, true)) return *code;
  const InterruptFlag interrupt;
  const auto body = [&](Transport& transport) {
    const int code = run_rank(program, transport, interrupt);
    if (transport.rank() == 0) exit_code = code;
  };
  if (plan.transport == TransportKind::mpi) {
    const int job_code = run_mpi(argc, argv, body);
    return job_code != 0 ? job_code : exit_code;
  }
  run_threads(plan.ranks, body);
  return exit_code;
}

}  // namespace shardmark::bench
