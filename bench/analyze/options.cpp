#include "bench/analyze/options.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/harness/build_info.hpp"
#include "bench/harness/handlers.hpp"
#include "layers/presets.hpp"

#include <charconv>
#include <cmath>

namespace shardmark::bench::analyze {
namespace {

constexpr const char* description =
    "shardmark-analyze: where the time of a recorded run goes. Reads timelines of PyTorch's "
    "profiler\n"
    "(Kineto JSON, plain or .gz), of Nsight Systems (exported to SQLite) and of the shardmark\n"
    "programs, one rank or many, and says how much is compute, exposed communication, copies and\n"
    "idle, per rank and step, which collective and which rank it is, and why.";

constexpr const char* examples =
    "Examples:\n"
    "  shardmark-analyze traces/\n"
    "      all ranks in a folder, one file each; the answer is on stdout\n"
    "  nsys export --type sqlite report.nsys-rep && shardmark-analyze report.sqlite\n"
    "      a report of Nsight Systems, one or several devices\n"
    "  shardmark-analyze 'run/rank*.json.gz' --steps last:3 --out analysis\n"
    "      the last three steps; tables as CSV and a trace of all ranks for Perfetto in analysis/\n"
    "  shardmark-analyze traces/ --axis-of 3=tp --axis-of 7=dp --comm-pattern 'my_allreduce'\n"
    "      says what groups are for, and which further kernels communicate\n"
    "  shardmark-analyze traces/ --model llama3-8b --tokens 64k --peak-tflops 989\n"
    "      adds MFU\n"
    "  shardmark-analyze --diff before/ after/\n"
    "      what changed between two runs, largest first\n"
    "Exit code: 0 done, 1 a file was broken or left out (the others are analysed), 2 bad input,\n"
    "128 + signal interrupted.";

constexpr double ns_per_us = 1e3;

/// `part` of a list, all of it or one end of a range.
std::int64_t parse_step(std::string_view option, std::string_view part, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0)
    throw InputError{message(option, ": '", part,
                             "' is not the number of a step; try 552, 552-554, last:3, all or "
                             "none")};
  return number;
}

StepChoice parse_steps(std::string_view option, const std::string& text) {
  using Kind = StepChoice::Kind;
  constexpr std::string_view last = "last:";
  if (text == "all") return {};
  if (text == "none") return {Kind::none, 0, {}, text};
  if (text.starts_with(last))
    return {Kind::last, parse_count(option, text.substr(last.size()), 1), {}, text};
  StepChoice choice{Kind::numbers, 0, {}, text};
  for (const std::string& part : split_list(option, text)) {
    const std::size_t dash = part.find('-');
    const std::int64_t first = parse_step(option, part, std::string_view{part}.substr(0, dash));
    const std::int64_t end =
        dash == std::string::npos
            ? first
            : parse_step(option, part, std::string_view{part}.substr(dash + 1));
    if (end < first)
      throw InputError{
          message(option, ": '", part, "' ends before it begins; try ", end, '-', first)};
    choice.ranges.emplace_back(first, end);
  }
  return choice;
}

Span parse_window(std::string_view option, const std::string& text) {
  const std::vector<std::string> ends = split_list(option, text);
  if (ends.size() != 2)
    throw InputError{message(option, ": '", text,
                             "' is not START,END in microseconds from the first device work; try "
                             "0,5000")};
  std::vector<std::int64_t> ns;
  for (const std::string& end : ends) {
    constexpr double longest_us = 1e15;
    const double us = parse_number(option, end, 0);
    if (us > longest_us)
      throw InputError{message(option, ": '", end, "' is too large; the largest value is 1e15")};
    ns.push_back(std::llround(us * ns_per_us));
  }
  if (ns[1] == ns[0])
    throw InputError{message(option, ": '", text, "' has no length; try ", ends[0], ',',
                             us_text(ns[0] + 1'000'000))};
  if (ns[1] < ns[0])
    throw InputError{
        message(option, ": '", text, "' ends before it begins; try ", ends[1], ',', ends[0])};
  return {ns[0], ns[1]};
}

/// "GROUP=tp"; names of groups may have an equals sign themselves.
void add_axis(Options& options, std::string_view option, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError{message(option, ": '", text,
                             "' is not GROUP=AXIS; try 3=tp, with a name from the column group "
                             "of the table of collectives")};
  const Choices<std::string> axes{
      {"tp", "tp"}, {"pp", "pp"}, {"dp", "dp"}, {"cp", "cp"}, {"ep", "ep"}};
  const std::string group = text.substr(0, equals);
  if (!options.axis_of.emplace(group, parse_choice(option, text.substr(equals + 1), axes)).second)
    throw InputError{message(option, ": group ", group, " is given more than once")};
}

CommandLine::Handler set_file(std::string& into) {
  return [&into](std::string_view option, const std::string& text) {
    if (text.empty()) throw InputError{message(option, " needs the name of a file")};
    if (text == "-")
      throw InputError{message(option,
                               ": '-' is no file, and the summary goes to stdout; give the "
                               "name of a file")};
    into = text;
  };
}

CommandLine::Handler set_above_zero(double& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_number(option, text, 0);
    if (into == 0) throw InputError{message(option, ": must be above 0")};
  };
}

void add_selection_options(CommandLine& line, Options& options) {
  line.group("What is looked at");
  line.add("--steps",
           {"LIST",
            "steps (ProfilerStep#N): numbers and ranges of them, last:N, all (the whole trace, and "
            "each step) or none (the whole trace only). Chosen steps cut the trace to them",
            "all", "552-554,560"},
           [&options](std::string_view option, const std::string& text) {
             options.steps = parse_steps(option, text);
           });
  line.add(
      "--window",
      {"START,END", "microseconds from the first device work of any rank", "whole trace", "0,5000"},
      [&options](std::string_view option, const std::string& text) {
        options.window = parse_window(option, text);
      });
  line.add("--range",
           {"NAME",
            "what runs on the device while a host range (annotation, NVTX range) of that name is "
            "open; with --steps or --window: what lies in both",
            "whole trace", "forward"},
           [&options](std::string_view option, const std::string& text) {
             if (text.empty()) throw InputError{message(option, " needs the name of a range")};
             options.range = text;
           });
}

void add_communication_options(CommandLine& line, Options& options) {
  line.group("Communication");
  line.add("--comm-rule",
           {"NAME",
            "what communicates. auto: by metadata and launching operations, else by every name "
            "that is known; nccl: names with nccl, rccl or hccl; wide: those, and names of "
            "expert-parallel and custom collectives",
            "auto", "nccl"},
           set_choice<CommRule>(options.rule, {{"auto", CommRule::automatic},
                                               {"nccl", CommRule::nccl},
                                               {"wide", CommRule::wide}}));
  line.add_repeatable("--comm-pattern",
                      {"REGEX", "further kernels that communicate, by name; may be repeated",
                       "none", "my_all_?reduce"},
                      [&options](std::string_view option, const std::string& text) {
                        if (text.empty())
                          throw InputError{message(option,
                                                   ": an empty pattern is in every name; "
                                                   "give a part of a kernel's name")};
                        options.comm_patterns.push_back(text);
                      });
  line.add_repeatable("--axis-of",
                      {"GROUP=AXIS",
                       "parallelism that a process group serves: tp, pp, dp, cp or ep; may be "
                       "repeated",
                       "by its description, else by its ranks", "3=tp"},
                      [&options](std::string_view option, const std::string& text) {
                        add_axis(options, option, text);
                      });
}

void add_work_options(CommandLine& line, Options& options) {
  WorkOfStep& work = options.work;
  line.group("Model FLOPs");
  line.add(
      "--model",
      {"NAME",
       "public model (shardmark-tp --list-models) whose FLOPs of a training step are "
       "counted; needs --tokens",
       "none: no MFU", "llama3-8b"},
      [&work](std::string_view, const std::string& text) { work.model = find_model(text).name; });
  line.add("--tokens", {"N", "tokens of a step over all ranks, each once", "none", "64k"},
           [&work](std::string_view option, const std::string& text) {
             work.tokens = parse_quantity(option, text);
           });
  line.add("--seq",
           {"N", "tokens of one sequence, for attention's FLOPs", "the model's as published", "8k"},
           [&work](std::string_view option, const std::string& text) {
             work.seq = parse_quantity(option, text);
           });
  line.add("--flops",
           {"X", "model FLOPs of a step over all ranks, instead of --model", "none", "3.1e15"},
           set_above_zero(work.flops));
  line.add("--peak-tflops",
           {"X", "TFLOP/s of one device that MFU is a share of: the dense peak of its data type",
            "by the device's name", "989"},
           set_above_zero(work.peak_tflops));
  line.add("--dtype",
           {"NAME", "of the matmuls, for a peak by name: bf16, f16 or f32", "bf16", "f16"},
           set_choice<DType>(work.dtype,
                             {{"bf16", DType::bf16}, {"f16", DType::f16}, {"f32", DType::f32}}));
  line.add("--num-devices", {"N", "devices that share the FLOPs", "ranks of the world", "64"},
           set_count(options.num_devices, 1));
}

void add_output_options(CommandLine& line, Options& options) {
  line.group("Output");
  line.add("--csv",
           {"FILE", "a row per rank and window, columns as in --list-columns", "none", "split.csv"},
           set_file(options.csv));
  line.add("--json", {"FILE", "all tables and the verdict", "none", "analysis.json"},
           set_file(options.json));
  line.add(
      "--out",
      {"DIR",
       "write run.json, a CSV per table (results, collectives, kernels, across, stages, gaps) and "
       "the trace of all ranks there; files of an earlier run are renamed to NAME.old",
       "no files", "analysis"},
      set_path(options.out));
  line.add("--merged-trace",
           {"FILE", "one trace of all ranks for Perfetto, clocks aligned; compressed, so FILE.gz",
            "none", "all.json"},
           set_file(options.merged_trace));
  line.add("--top", {"N", "kernels, gaps and collectives to print", message(options.top), "20"},
           set_count(options.top, 0));
  line.add("--diff", {"", "compare two inputs: what changed, largest first", "", ""},
           set_flag(options.diff));
  line.add("--threads", {"N", "files read at the same time", "the cores", "1"},
           set_count(options.threads, 1));
  line.add_print("--list-columns", "print the columns of all tables (Markdown)", columns_markdown);
  line.add_print("--version", "print the version", [] { return version_text() + "\n"; });
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line{{"shardmark-analyze", description, examples}};
  line.add_positionals(
      "INPUT",
      "traces of one run: files, folders or globs (quoted), one file per rank; "
      "with --diff two runs, each a file, folder or glob",
      [&options](std::string_view, const std::string& text) { options.inputs.push_back(text); });
  add_selection_options(line, options);
  add_communication_options(line, options);
  add_work_options(line, options);
  line.group("Verdict");
  add_limit_options(line, options.thresholds, true);
  add_output_options(line, options);
  options.print = line.parse(arguments);
  if (options.print.empty()) check_together(options, arguments);
  return options;
}

std::string_view name_of(CommRule rule) {
  switch (rule) {
    case CommRule::automatic:
      return "auto";
    case CommRule::nccl:
      return "nccl";
    case CommRule::wide:
      return "wide";
  }
  return "";
}

}  // namespace shardmark::bench::analyze
