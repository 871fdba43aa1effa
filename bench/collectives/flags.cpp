#include "bench/collectives/flags.hpp"

#include "bench/harness/quantity.hpp"
#include "collectives/plan.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <limits>

namespace shardmark::bench::collectives {
namespace {

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

void add_nccl_flags(CommandLine& line, Options& options) {
  line.group("As in nccl-tests");
  line.add("-b,--minbytes", {"SIZE", "smallest size", "32M", "8"}, set_bytes(options.min_bytes));
  line.add("-e,--maxbytes", {"SIZE", "largest size", "32M", "64M"}, set_bytes(options.max_bytes));
  line.add("-i,--stepbytes", {"SIZE", "step between sizes, without -f", "1M", "64K"},
           set_bytes(options.step_bytes));
  line.add("-f,--stepfactor", {"X", "factor between sizes, above 1", "none: steps of -i", "2"},
           [&options](std::string_view option, const std::string& text) {
             options.step_factor =
                 parse_number(option, text, std::numeric_limits<double>::lowest());
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
           set_count(options.checks, 0));
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
  line.add("--tune",
           {"FILE",
            "write the fastest algorithm by size there; at least 50 samples per row. With "
            "--algorithm auto but no --tuning: measure twice, auto by the table of the first pass",
            "none", "choice.txt"},
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

}  // namespace

void add_flags(CommandLine& line, Options& options) {
  line.add_positional("COLLECTIVE", "names of --list, separated by commas, or all",
                      [&options](std::string_view, const std::string& text) {
                        options.collectives = parse_collectives(text);
                      });
  add_nccl_flags(line, options);
  add_algorithm_flags(line, options);
  add_run_flags(line, options);
  add_device_flags(line, options);
  add_measurement_flags(line, options);
  add_output_flags(line, options);
}

}  // namespace shardmark::bench::collectives
