#include "bench/harness/build_info.hpp"
#include "bench/harness/columns.hpp"
#include "bench/harness/command_line.hpp"
#include "bench/harness/csv.hpp"
#include "bench/harness/handlers.hpp"
#include "bench/harness/options_engine.hpp"
#include "core/adaptors.hpp"
#include "core/error.hpp"
#include "layers/presets.hpp"

namespace shardmark::bench {
namespace {

/// The text that is for the program.
std::string_view by_tool(Tool tool, std::string_view tp, std::string_view cp, std::string_view pp) {
  return tool == Tool::tp ? tp : tool == Tool::cp ? cp : pp;
}

std::string list_models() {
  std::string text;
  for (const ModelPreset& preset : model_presets()) {
    const ModelShape& shape = preset.shape;
    text += message(preset.name, ": ", shape.layers, " layers, hidden ", shape.hidden, ", ",
                    shape.heads, " heads, ", shape.kv_heads, " kv heads, ffn ", shape.ffn,
                    ", vocab ", shape.vocab, ", seq ", shape.seq, ", ", name_of(shape.mlp), ", ",
                    name_of(shape.norm), " norm, ", name_of(shape.positions), " positions\n  ",
                    preset.source, '\n');
  }
  return text;
}

}  // namespace

void add_parallel_options(CommandLine& line, Options& options) {
  line.group("Parallelism");
  line.add("--tp",
           {"N,...", "tensor-parallel degrees; all run in one launch",
            "1, 2, 4, ... up to the number of ranks", "1,2,4"},
           set_counts(options.tp));
  line.add("--sequence-parallel",
           {"off|on,...", "split the tokens outside of the linears, too", "off", "off,on"},
           set_switches(options.sequence_parallel));
  line.add(
      "--overlap",
      {"off|on,...", "run the communication of one chunk of tokens behind the next one's matmul",
       "off", "off,on"},
      set_switches(options.overlap));
  line.add("--overlap-chunks",
           {"N", "chunks of tokens with overlap; lowered to what divides the tokens", "4", "2"},
           set_count(options.overlap_chunks, 1));
  line.add("--keep-gathered",
           {"",
            "sequence parallelism: keep the gathered input for the backward pass instead of "
            "gathering it again (less communication, more memory)",
            "", ""},
           set_flag(options.keep_gathered));
  line.add("--gather-output",
           {"on|off", "linear-column: gather the output's columns on every rank", "on", "off"},
           [&options](std::string_view option, const std::string& text) {
             options.gather_output = parse_switch(option, text);
           });
  add_launch_options(line, options);
}

void add_launch_options(CommandLine& line, Options& options) {
  add_transport_options(line, options.runner.engine, options.transport);
  line.add(
      "--ranks",
      {"N", "ranks to start with --transport threads",
       message("the largest ", by_tool(options.tool, "--tp", "--cp x --tp", "--pp x --tp x --dp"),
               ", or the cores, at most 8"),
       "2"},
      set_count(options.ranks, 1));
  line.add("--algorithm",
           {"AXIS=NAME,...",
            "do the collectives of an axis by one of our own algorithms (list of "
            "shardmark-collectives), or by auto: what the table of --tuning says",
            "the transport's own", message(by_tool(options.tool, "tp", "cp", "dp"), "=ring")},
           [&options](std::string_view option, const std::string& text) {
             try {
               options.runner.plans.algorithms = parse_axis_algorithms(text);
             } catch (const InputError& error) {
               throw InputError{message(option, ": ", error.what())};
             }
           });
  line.add("--tuning",
           {"FILE", "table for --algorithm AXIS=auto; shardmark-collectives --tune writes it",
            "none", "choice.txt"},
           [&options](std::string_view option, const std::string& text) {
             try {
               options.runner.plans.table = parse_choice_table(read_file(text));
             } catch (const Error& error) {
               throw InputError{message(option, ' ', text, ": ", error.what())};
             }
           });
  line.add("--threads-per-rank", {"N", "compute threads of each rank", "1", "2"},
           set_count(options.runner.threads_per_rank, 1));
  line.add("--fill",
           {"NAME",
            message("ranks beyond ", by_tool(options.tool, "tp", "cp x tp", "pp x tp x dp"),
                    " stay idle, or replicate the work as data parallelism would"),
            "idle", "replicate"},
           set_choice<bool>(options.runner.replicate, {{"idle", false}, {"replicate", true}}));
}

void add_measurement_options(CommandLine& line, Options& options) {
  RunnerOptions& runner = options.runner;
  line.group("Measurement");
  if (options.tool != Tool::pp)
    line.add(
        "--phase",
        {"NAME,...", "forward, backward, or step (both, no optimizer)", "step", "forward,step"},
        set_choices<Phase>(options.phases, {{"forward", Phase::forward},
                                            {"backward", Phase::backward},
                                            {"step", Phase::step},
                                            {"fwd", Phase::forward},
                                            {"bwd", Phase::backward}}));
  line.add("--check",
           {"NAME",
            std::string{by_tool(
                options.tool,
                "compare with the same block at tp 1: off, reduced (a smaller shape), full",
                "compare with one rank in float64: off, reduced (a smaller shape), full (slow)",
                "compare with the whole model on one rank: off, reduced (a smaller shape), full")},
            "reduced", "full"},
           set_choice<CheckMode>(runner.check, {{"off", CheckMode::off},
                                                {"reduced", CheckMode::reduced},
                                                {"full", CheckMode::full}}));
  line.add("--warmup", {"N", "least untimed iterations per row", message(runner.warmup), "5"},
           set_count(runner.warmup, 0));
  line.add("--min-samples",
           {"N", "least timed samples per row; once they took 3 times --max-time, 3 are enough",
            message(runner.min_samples), "30"},
           set_count(runner.min_samples, 1));
  line.add("--max-time", {"S", "seconds of sampling per row", message(runner.max_time_s), "0.5"},
           set_number(runner.max_time_s, 0));
  line.add("--seed", {"N", "seed of weights and inputs", message(runner.seed), "7"},
           [&runner](std::string_view option, const std::string& text) {
             runner.seed = parse_seed(option, text);
           });
  line.add("--peak-tflops",
           {"X", "TFLOP/s of one rank that MFU is a share of", "that of --peak", "1.5"},
           [&runner](std::string_view option, const std::string& text) {
             runner.peak_tflops = parse_number(option, text, 0);
             if (runner.peak_tflops == 0) throw InputError{message(option, ": must be above 0")};
           });
  add_peak_option(line, runner.engine);
  line.add("--timeout",
           {"S", "seconds a rank waits for the others before it gives up",
            message(options.timeout_s), "30"},
           set_number(options.timeout_s, 0.1));
  VerdictThresholds& limits = runner.thresholds;
  add_limit_options(line, limits, options.tool == Tool::pp);
  line.add("--limit-bandwidth",
           {"PCT", "verdict memory_bound: bytes per second, percent of the copy bandwidth",
            message(limits.memory_bandwidth_pct), "60"},
           set_number(limits.memory_bandwidth_pct, 0));
  line.add("--limit-flops",
           {"PCT", "verdict memory_bound: ... while FLOP/s are below this percentage of the peak",
            message(limits.memory_flops_pct), "20"},
           set_number(limits.memory_flops_pct, 0));
}

void add_limit_options(CommandLine& line, VerdictThresholds& limits, bool has_stages) {
  line.add("--limit-imbalance",
           {"X", "verdict imbalanced: slowest over fastest rank's compute time",
            message(limits.imbalance_ratio), "1.2"},
           set_number(limits.imbalance_ratio, 1));
  if (has_stages)
    line.add("--limit-bubble",
             {"PCT", "verdict bubble_bound: bubble, percent of the window",
              message(limits.bubble_pct), "30"},
             set_percent(limits.bubble_pct));
  line.add("--limit-communication",
           {"PCT", "verdict communication_bound: exposed communication, percent of the window",
            message(limits.communication_pct), "30"},
           set_percent(limits.communication_pct));
  line.add("--warn-communication",
           {"PCT", "exposed communication worth a word, percent of the window",
            message(limits.communication_warn_pct), "15"},
           set_percent(limits.communication_warn_pct));
}

void add_output_options(CommandLine& line, Options& options) {
  add_engine_options(line, options.runner.engine, options.dry_run);
  line.group("Output");
  line.add("--out",
           {"DIR",
            "write run.json, results.csv, kernels.csv and the timeline there; files of an "
            "earlier run are renamed to NAME.old",
            "no files", "run"},
           set_path(options.out));
  line.add("--resume", {"", "go on with the sweep in --out: skip rows its results.csv has", "", ""},
           set_flag(options.resume));
  line.add(
      "--dry-run",
      {"", "operations, FLOPs, bytes and memory per rank of every row; executes nothing", "", ""},
      set_flag(options.dry_run));
  line.add("--dump",
           {"DIR",
            "instead of timing: run forward and backward once and write every tensor of "
            "every rank as .npy, described by manifest.json",
            "no files", "dump"},
           set_path(options.dump));
  line.add("--verbose",
           {"", "more of everything: operations of --dry-run, communication formulas", "", ""},
           set_flag(options.verbose));
  line.add_print("--list-columns", "print the columns of results.csv and kernels.csv (Markdown)",
                 [tool = options.tool] { return columns_markdown(tool); });
  if (options.tool != Tool::cp)
    line.add_print("--list-models", "print the known models with their sources", list_models);
  line.add_print("--version", "print the version", [] { return version_text() + "\n"; });
}

void add_testing_options(CommandLine& line, Options& options) {
  line.group("Testing");
  line.add(
      "--inject-fault",
      {"SPEC",
       "break one rank: KIND:rank=R:op=N with KIND exit:CODE, kill, hang, throw, slow:MICROSECONDS "
       "(each op from then on is late) or nan (seen by --check-nan)",
       "none", "hang:rank=1:op=40"},
      [&options](std::string_view option, const std::string& text) {
        if (parse_fault(text).kind == Fault::Kind::corrupt)
          throw InputError{message(option, ' ', text,
                                   ": only shardmark-collectives checks every result, so corrupt "
                                   "would go unseen here; try nan with --check-nan")};
        options.runner.fault = text;
      });
  line.add("--check-nan",
           {"", "run one iteration op by op first and stop at the first that writes a NaN", "", ""},
           set_flag(options.runner.check_nan));
}

}  // namespace shardmark::bench
