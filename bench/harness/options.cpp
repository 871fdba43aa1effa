#include "bench/harness/options.hpp"

#include "bench/harness/command_line.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "layers/presets.hpp"

#include <algorithm>

namespace shardmark::bench {
namespace {

/// Threads of one process beyond this many only wait for each other; --ranks asks for more.
constexpr int most_default_ranks = 8;

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line;
  add_shape_options(line, options);
  add_parallel_options(line, options);
  add_measurement_options(line, options);
  add_output_options(line, options);
  add_testing_options(line, options);
  options.print = line.parse(arguments);
  if (options.resume && options.out.empty())
    throw InputError{"--resume needs the folder to go on with; add --out DIR"};
  if (!options.dump.empty() && !options.out.empty())
    throw InputError{"--dump times nothing that --out could keep; leave out one of them"};
  if (options.dry_run && !options.dump.empty())
    throw InputError{"--dry-run computes nothing that --dump could write; leave out one of them"};
  for (const std::string& model : options.models) (void)find_model(model);
  return options;
}

std::vector<int> tp_degrees(const Options& options, int world_size) {
  std::vector<int> degrees = options.tp;
  if (degrees.empty()) {
    for (int tp = 1; tp < world_size; tp *= 2) degrees.push_back(tp);
    degrees.push_back(world_size);
  }
  std::ranges::sort(degrees);
  return degrees;
}

LaunchPlan plan_launch(const Options& options, const std::string& launcher, bool have_mpi) {
  const bool launched = !launcher.empty();
  if (launched && options.transport == TransportKind::threads)
    throw InputError{message("--transport threads under ", launcher,
                             " would run independent copies of the program; leave out --transport "
                             "threads, or start without the launcher and use --ranks N")};
  if (launched && !have_mpi)
    throw InputError{message("started by ", launcher,
                             ", but this program was built without MPI, so every process would "
                             "measure alone; rebuild with MPI (Debian: libmpich-dev), or start "
                             "without the launcher and use --transport threads --ranks N")};
  if (launched || options.transport == TransportKind::mpi) {
    if (!have_mpi)
      throw InputError{
          "--transport mpi: this program was built without MPI; rebuild with MPI "
          "(Debian: libmpich-dev) or use --transport threads"};
    if (options.ranks)
      throw InputError{message("--ranks ", *options.ranks,
                               " is for --transport threads; with mpi the launcher decides: mpirun "
                               "-n ",
                               *options.ranks, " shardmark-tp ...")};
    return {TransportKind::mpi, 1};
  }
  if (options.ranks) return {TransportKind::threads, *options.ranks};
  if (!options.tp.empty()) return {TransportKind::threads, *std::ranges::max_element(options.tp)};
  return {TransportKind::threads, std::min(cores_available(), most_default_ranks)};
}

}  // namespace shardmark::bench
