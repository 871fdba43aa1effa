#include "bench/harness/csv.hpp"
#include "bench/harness/handlers.hpp"
#include "sim/calibrate.hpp"

namespace shardmark::bench {
namespace {

std::string list_machines() {
  std::string text;
  for (const std::string& name : machine_names())
    text += message(name, ": ", load_machine(name).about, '\n');
  return text;
}

}  // namespace

void add_prediction_options(CommandLine& line, Options& options) {
  line.group("Prediction");
  line.add("--predict",
           {"MACHINE",
            "instead of running: what the rows take on a machine of --list-machines, or of a "
            "machine file (sim/README.md); needs no ranks",
            "none", "h100-sxm-8"},
           [&options](std::string_view, const std::string& text) {
             options.machine = load_machine(text);
           });
  line.add_print("--list-machines", "print the machines that --predict knows", list_machines);
  if (options.tool != Tool::tp) return;
  line.add(
      "--calibrate",
      {"DIR",
       "print the machine file of the machine that the run in DIR measured (of shardmark-tp, -cp "
       "or -pp): rows with and without communication over the sizes of interest, a core per "
       "rank",
       "none", "run > mine.json"},
      set_path(options.calibrate));
  line.add("--machine-name", {"NAME", "its name", options.machine_name, "mine"},
           [&options](std::string_view option, const std::string& text) {
             if (text.empty()) throw InputError{message(option, " needs a name")};
             options.machine_name = text;
           });
}

std::string calibrated_machine(const Options& options) {
  const std::string& folder = options.calibrate;
  try {
    const std::string kernels = read_file(folder + "/kernels.csv");
    return to_json(calibrate(options.machine_name, kernels, read_file(folder + "/run.json")));
  } catch (const Error& error) {
    throw InputError{message("--calibrate ", folder, ": ", error.what())};
  }
}

}  // namespace shardmark::bench
