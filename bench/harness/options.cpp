#include "bench/harness/options.hpp"

#include "bench/harness/command_line.hpp"
#include "core/error.hpp"
#include "layers/presets.hpp"

#include <algorithm>

namespace shardmark::bench {
namespace {

constexpr const char* description =
    "shardmark-tp: time tensor-parallel transformer layers and say where the time goes.\n"
    "Options that take N,... or NAME,... sweep: every combination is one row of the result.\n"
    "In sizes k is 1024 and m is 1024 x 1024.";

constexpr const char* examples =
    "Examples:\n"
    "  shardmark-tp --ranks 2\n"
    "      a block at tp 1 and 2 on two threads of this process\n"
    "  mpirun -n 2 shardmark-tp --tp 1,2 --hidden 1k,2k --sequence-parallel off,on --out run\n"
    "      a sweep on two MPI ranks; table on stdout, files in run/\n"
    "  mpirun -n 2 shardmark-tp --model llama3-8b --seq 256 --tp 1,2\n"
    "      one block with the shape of a public model\n"
    "  mpirun -n 8 shardmark-tp --backend cuda --dtype bf16 --hidden 8k --seq 4k\n"
    "      on GPUs, bytes by NCCL; --transport staged lets ranks share one\n"
    "  shardmark-tp --dry-run --model llama3-70b --tp 1,2,4,8 --seq 8k\n"
    "      operations, FLOPs, bytes and memory of each rank; nothing is executed\n"
    "  shardmark-tp --predict h100-sxm-8 --model llama3-70b --tp 1,2,4,8 --seq 8k --dtype bf16\n"
    "      the same table for eight H100s; nothing is executed\n"
    "Exit code: 0 done, 1 a row failed or an error, 2 bad input, 128 + signal interrupted.";

/// What only ranks that run can do.
void check_prediction(const Options& options) {
  const RunnerOptions& runner = options.runner;
  for (const auto& [given, name] : {std::pair{options.dry_run, "--dry-run"},
                                    {!options.dump.empty(), "--dump"},
                                    {options.ranks.has_value(), "--ranks"},
                                    {options.transport.has_value(), "--transport"},
                                    {runner.engine.peak != PeakKind::automatic, "--peak"},
                                    {runner.replicate, "--fill replicate"},
                                    {!runner.fault.empty(), "--inject-fault"},
                                    {runner.check == CheckMode::full, "--check full"},
                                    {runner.threads_per_rank > 1, "--threads-per-rank"},
                                    {runner.check_nan, "--check-nan"}})
    if (given)
      throw InputError{
          message("--predict runs nothing that ", name, " could be for; leave out one of them")};
  if (!runner.plans.algorithms.empty())
    throw InputError{
        "--predict takes the collectives' algorithms from the machine file (\"collectives\"); "
        "leave out --algorithm"};
}

}  // namespace

CommandLine::Program layers_program() { return {"shardmark-tp", description, examples}; }

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line{layers_program()};
  add_shape_options(line, options);
  add_parallel_options(line, options);
  add_measurement_options(line, options);
  add_prediction_options(line, options);
  add_output_options(line, options);
  add_testing_options(line, options);
  options.print = line.parse(arguments);
  check_contradictions(options);
  for (const std::string& model : options.models) (void)find_model(model);
  if (!options.calibrate.empty()) options.print = calibrated_machine(options);
  return options;
}

void check_contradictions(const Options& options) {
  if (options.resume && options.out.empty())
    throw InputError{"--resume needs the folder to go on with; add --out DIR"};
  if (!options.dump.empty() && !options.out.empty())
    throw InputError{"--dump times nothing that --out could keep; leave out one of them"};
  if (options.dry_run && !options.out.empty())
    throw InputError{
        "--dry-run makes no rows that --out could keep, what it says is on standard output; leave "
        "out one of them"};
  if (options.dry_run && !options.dump.empty())
    throw InputError{"--dry-run computes nothing that --dump could write; leave out one of them"};
  for (const auto& [axis, algorithm] : options.runner.plans.algorithms)
    if (algorithm == "auto" && options.runner.plans.table.rows().empty())
      throw InputError{message("--algorithm ", name_of(axis),
                               "=auto needs a table of measured choices; add --tuning FILE")};
  if (options.runner.peak_tflops > 0 && options.runner.engine.peak != PeakKind::automatic)
    throw InputError{"--peak-tflops is the peak, whatever --peak says; leave out one of them"};
  EngineOptions engine = options.runner.engine;
  engine.threads_per_rank = options.runner.threads_per_rank;
  check_engine_options(engine);
  const std::string gpu_option = option_of_gpus(engine);
  if (!gpu_option.empty() && (options.dry_run || options.machine))
    throw InputError{message(options.machine ? "--predict" : "--dry-run", " runs nothing that ",
                             gpu_option, " could be for; leave out one of them")};
  if (options.machine) check_prediction(options);
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

LaunchRequest launch_request(const Options& options) {
  const int ranks = options.tp.empty() ? default_ranks() : *std::ranges::max_element(options.tp);
  return {"shardmark-tp", options.transport, options.ranks, options.machine ? 1 : ranks};
}

}  // namespace shardmark::bench
