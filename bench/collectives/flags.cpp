#include "bench/collectives/flags.hpp"

#include "bench/collectives/columns.hpp"
#include "bench/harness/build_info.hpp"
#include "bench/harness/quantity.hpp"
#include "collectives/plan.hpp"
#include "core/adaptors.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace shardmark::bench::collectives {
namespace {

CommandLine::Handler set_flag(bool& into, bool value) {
  return [&into, value](std::string_view, const std::string&) { into = value; };
}
CommandLine::Handler set_count(int& into, int lowest) {
  return [&into, lowest](std::string_view option, const std::string& text) {
    into = parse_count(option, text, lowest);
  };
}
CommandLine::Handler set_bytes(std::int64_t& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_bytes(option, text);
  };
}
CommandLine::Handler set_number(double& into, double lowest) {
  return [&into, lowest](std::string_view option, const std::string& text) {
    into = parse_number(option, text, lowest);
  };
}
CommandLine::Handler set_path(std::string& into) {
  return [&into](std::string_view option, const std::string& text) {
    if (text.empty()) throw InputError{message(option, " needs a name")};
    into = text;
  };
}
/// nccl-tests' flags that have one value here.
CommandLine::Handler accept_one() {
  return [](std::string_view option, const std::string& text) {
    if (parse_count(option, text, 1) != 1)
      throw InputError{message(option, " ", text,
                               ": a rank is one process or thread here; start more ranks with "
                               "mpirun -n N or --ranks N")};
  };
}

std::vector<std::pair<std::string_view, DType>> dtype_choices() {
  return {{"float", DType::f32},     {"f32", DType::f32},   {"double", DType::f64},
          {"f64", DType::f64},       {"half", DType::f16},  {"f16", DType::f16},
          {"bfloat16", DType::bf16}, {"bf16", DType::bf16}, {"int32", DType::i32},
          {"i32", DType::i32},       {"int8", DType::i8},   {"i8", DType::i8}};
}
std::vector<std::pair<std::string_view, Reduction>> reduction_choices() {
  return {{"sum", Reduction::sum},
          {"prod", Reduction::prod},
          {"max", Reduction::max},
          {"min", Reduction::min},
          {"avg", Reduction::avg}};
}

template <class T>
std::vector<T> parse_all(std::string_view option, std::string_view text,
                         const std::vector<std::pair<std::string_view, T>>& choices) {
  if (text != "all")
    return parse_list(option, text, [&](std::string_view name, std::string_view part) {
      return parse_choice<T>(name, part, choices);
    });
  std::vector<T> all;
  for (const auto& [name, value] : choices)
    if (std::ranges::find(all, value) == all.end()) all.push_back(value);
  return all;
}

std::vector<std::string_view> collective_names() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < num_collectives; ++i)
    names.push_back(name_of(static_cast<Collective>(i)));
  return names;
}

std::vector<Collective> parse_collectives(const std::string& text) {
  std::vector<Collective> all;
  if (text == "all") {
    for (std::size_t i = 0; i < num_collectives; ++i) all.push_back(static_cast<Collective>(i));
    return all;
  }
  return parse_list("COLLECTIVE", text, [](std::string_view option, std::string_view part) {
    if (const auto collective = parse_collective(part)) return *collective;
    fail_choice(option, part, collective_names());
  });
}

std::string parse_algorithm(std::string_view option, std::string_view text) {
  std::vector<std::string_view> names{"native", "auto", "all"};
  for (const Algorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  if (std::ranges::find(names, text) == names.end()) fail_choice(option, text, names);
  return std::string{text};
}

std::string list_algorithms() {
  std::string text;
  for (std::size_t i = 0; i < num_collectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    text += message(name_of(collective), ": native");
    for (const std::string_view name : algorithm_names(collective)) text += message(", ", name);
    text += '\n';
  }
  text += '\n';
  for (const Algorithm& algorithm : algorithms())
    text += message(algorithm.name, ": ", algorithm.about, '\n');
  return text;
}

void add_nccl_flags(CommandLine& line, Options& options) {
  line.group("As in nccl-tests");
  line.add("-b,--minbytes", {"SIZE", "smallest size", "32M", "8"}, set_bytes(options.min_bytes));
  line.add("-e,--maxbytes", {"SIZE", "largest size", "32M", "64M"}, set_bytes(options.max_bytes));
  line.add("-i,--stepbytes", {"SIZE", "step between sizes, without -f", "1M", "64K"},
           set_bytes(options.step_bytes));
  line.add("-f,--stepfactor", {"X", "factor between sizes, above 1", "none: steps of -i", "2"},
           [&options](std::string_view option, const std::string& text) {
             options.step_factor = parse_number(option, text, 0);
             if (options.step_factor <= 1)
               throw InputError{message("-f ", text,
                                        " never gets from -b to -e; give a factor above 1, for "
                                        "example -f 2")};
           });
  line.add("-n,--iters",
           {"N", "samples; each is back-to-back calls that last 100 us or longer",
            "as many as the stop rule wants", "20"},
           set_count(options.iterations, 1));
  line.add("-w,--warmup_iters", {"N", "untimed samples before", message(options.warmup), "1"},
           set_count(options.warmup, 0));
  line.add("-m,--agg_iters", {"N", "least back-to-back calls of a sample", "1", "4"},
           set_count(options.aggregate, 1));
  line.add("-c,--check", {"N", "0: do not compare the results; otherwise every element", "1", "0"},
           [&options](std::string_view option, const std::string& text) {
             options.check = parse_count(option, text, 0) > 0;
           });
  line.add("-o,--op", {"NAME,...", "sum, prod, max, min, avg, or all", "sum", "max"},
           [&options](std::string_view option, const std::string& text) {
             options.reductions = parse_all(option, text, reduction_choices());
           });
  line.add("-d,--datatype",
           {"NAME,...", "float, double, half, bfloat16, int32, int8 (or f32, ...), or all", "float",
            "bfloat16"},
           [&options](std::string_view option, const std::string& text) {
             options.dtypes = parse_all(option, text, dtype_choices());
           });
  line.add("-r,--root", {"N", "root, a member of the group", "0", "1"}, set_count(options.root, 0));
  line.add("-a,--average",
           {"N", "a sample is the time of: 0 rank 0, 1 the average, 2 the fastest, 3 the slowest",
            "3 (nccl-tests: 1)", "1"},
           [&options](std::string_view option, const std::string& text) {
             options.scope = parse_choice<Scope>(option, text,
                                                 {{"0", Scope::rank_0},
                                                  {"1", Scope::average},
                                                  {"2", Scope::minimum},
                                                  {"3", Scope::maximum}});
           });
  line.add("-z,--blocking", {"0|1", "1: wait after each call, not after each sample", "0", "1"},
           [&options](std::string_view option, const std::string& text) {
             options.blocking = parse_choice<bool>(option, text, {{"0", false}, {"1", true}});
           });
  line.add("-g,--ngpus", {"1", "accepted for compatibility", "1", "1"}, accept_one());
  line.add("-t,--nthreads", {"1", "accepted for compatibility", "1", "1"}, accept_one());
}

void add_algorithm_flags(CommandLine& line, Options& options) {
  line.group("Algorithms");
  line.add("--algorithm",
           {"NAME,...", "native (the transport's own), names of --list, auto, or all", "native",
            "native,ring"},
           [&options](std::string_view option, const std::string& text) {
             options.algorithms = parse_list(option, text, parse_algorithm);
           });
  line.add("--plan", {"FILE", "run the plan in FILE, beside --algorithm", "none", "ring.plan"},
           set_path(options.plan_file));
  line.add("--print-plan", {"", "print the plans as text instead of running them", "", ""},
           set_flag(options.print_plan, true));
  line.add("--svg", {"FILE", "draw the plan instead of running it", "none", "ring.svg"},
           set_path(options.svg_file));
  line.add("--tune", {"FILE", "write the fastest algorithm by size there", "none", "choice.txt"},
           set_path(options.tune_file));
  line.add("--tuning", {"FILE", "table of --algorithm auto", "none", "choice.txt"},
           set_path(options.tuning_file));
  line.add("--pattern",
           {"NAME", "send_recv: ring (member i to i + 1), ping, ping-pong or bidirectional", "ring",
            "ping-pong"},
           [&options](std::string_view option, const std::string& text) {
             options.pattern = parse_choice<Pattern>(option, text,
                                                     {{"ring", Pattern::ring},
                                                      {"ping", Pattern::ping},
                                                      {"ping-pong", Pattern::ping_pong},
                                                      {"bidirectional", Pattern::bidirectional}});
           });
}

void add_run_flags(CommandLine& line, Options& options) {
  line.group("Ranks and groups");
  line.add("--groups",
           {"AXIS=N,...", "ranks as a grid; the product is the number of ranks", "one group",
            "tp=4,dp=2"},
           [&options](std::string_view option, const std::string& text) {
             options.groups = parse_groups(option, text);
           });
  line.add("--axis", {"NAME", "axis of --groups whose groups communicate, all at once", "tp", "dp"},
           [&options](std::string_view option, const std::string& text) {
             options.axis = parse_choice<Axis>(option, text,
                                               {{"dp", Axis::dp},
                                                {"pp", Axis::pp},
                                                {"cp", Axis::cp},
                                                {"ep", Axis::ep},
                                                {"tp", Axis::tp}});
           });
  line.add("--transport",
           {"NAME", "threads of one process, or mpi", "mpi under a launcher, otherwise threads",
            "threads"},
           [&options](std::string_view option, const std::string& text) {
             options.transport = parse_choice<TransportKind>(
                 option, text, {{"threads", TransportKind::threads}, {"mpi", TransportKind::mpi}});
           });
  line.add("--ranks", {"N", "ranks to start with --transport threads", "the cores, at most 8", "2"},
           [&options](std::string_view option, const std::string& text) {
             options.ranks = parse_count(option, text, 1);
           });
}

/// "5000" or "5000:rank=1".
void set_skew(Options& options, std::string_view option, const std::string& text) {
  constexpr std::string_view mark = ":rank=";
  const std::size_t colon = text.find(':');
  options.skew_us = parse_number(option, text.substr(0, colon), 0);
  if (colon == std::string::npos) return;
  if (text.compare(colon, mark.size(), mark) != 0)
    throw InputError{message(option, ": '", text, "' is not N or N:rank=R; try 5000:rank=1")};
  options.skew_rank = parse_count(option, text.substr(colon + mark.size()), 0);
}

void add_measurement_flags(CommandLine& line, Options& options) {
  line.group("Measurement");
  line.add("--min-samples", {"N", "least samples without -n", message(options.min_samples), "30"},
           set_count(options.min_samples, 1));
  line.add("--max-time", {"S", "seconds of sampling per row", message(options.max_time_s), "1"},
           set_number(options.max_time_s, 0));
  line.add("--timeout",
           {"S", "seconds a rank waits for the others before it gives up",
            message(options.timeout_s), "30"},
           set_number(options.timeout_s, 0.1));
  line.add("--out-of-place-only", {"", "leave out the in-place half", "", ""},
           set_flag(options.in_place, false));
  line.add("--no-waits", {"", "leave out the pass with arrival stamps", "", ""},
           set_flag(options.waits, false));
  line.add(
      "--skew-us",
      {"N[:rank=R]", "delay rank R (the last one) before each call of the pass with stamps, us",
       "0", "5000:rank=1"},
      [&options](std::string_view option, const std::string& text) {
        set_skew(options, option, text);
      });
  line.add("--with-matmul",
           {"M,N,K", "an f32 matrix product beside each collective: alone, together, taxes", "none",
            "512,512,512"},
           [&options](std::string_view option, const std::string& text) {
             options.matmul.clear();
             for (const std::string& part : split_list(option, text))
               options.matmul.push_back(parse_quantity(option, part));
             if (options.matmul.size() != 3)
               throw InputError{message(option, ": '", text, "' is not M,N,K; try 512,512,512")};
           });
  line.add("--progress",
           {"NAME", "--with-matmul: poll (communication moves between tiles of the product)",
            "poll", "poll"},
           [](std::string_view option, const std::string& text) {
             if (text == "thread")
               throw InputError{message(option,
                                        " thread is not there: ranks make progress in the thread "
                                        "that computes; use --progress poll")};
             constexpr std::array<std::string_view, 1> names{"poll"};
             if (text != "poll") fail_choice(option, text, names);
           });
}

void add_output_flags(CommandLine& line, Options& options) {
  line.group("Output");
  line.add("--out",
           {"DIR",
            "write run.json, results.csv and waits.csv there; files of an earlier run are renamed "
            "to NAME.old",
            "no files", "run"},
           set_path(options.out));
  line.add("--resume", {"", "go on with the sweep in --out: skip rows its results.csv has", "", ""},
           set_flag(options.resume, true));
  line.add("--percentiles", {"", "p10, p95, p99 and cv behind nccl-tests' columns", "", ""},
           set_flag(options.percentiles, true));
  line.add("--import",
           {"FILE,...", "read logs of nccl-tests, rccl-tests or OSU into --out instead of running",
            "none", "log.txt"},
           [&options](std::string_view option, const std::string& text) {
             options.import_files = split_list(option, text);
           });
  line.add_print("--list", "print collectives and their algorithms", list_algorithms);
  line.add_print("--list-columns", "print the columns of results.csv (Markdown)", columns_markdown);
  line.add_print("--version", "print the version", [] { return version_text() + "\n"; });
  line.group("Testing");
  line.add(
      "--inject-fault",
      {"SPEC", "break one rank: KIND:rank=R:op=N with KIND corrupt, exit:CODE, kill, hang or throw",
       "none", "corrupt:rank=1:op=3"},
      [&options](std::string_view, const std::string& text) {
        (void)parse_fault(text);
        options.fault = text;
      });
}

}  // namespace

void add_flags(CommandLine& line, Options& options) {
  line.add_positional("COLLECTIVE", "names of --list, separated by commas, or all",
                      [&options](std::string_view, const std::string& text) {
                        options.collectives = parse_collectives(text);
                      });
  add_nccl_flags(line, options);
  add_algorithm_flags(line, options);
  add_run_flags(line, options);
  add_measurement_flags(line, options);
  add_output_flags(line, options);
}

}  // namespace shardmark::bench::collectives
