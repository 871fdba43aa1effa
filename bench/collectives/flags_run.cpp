#include "bench/collectives/columns.hpp"
#include "bench/collectives/flags.hpp"
#include "bench/harness/build_info.hpp"
#include "bench/harness/options_engine.hpp"
#include "bench/harness/quantity.hpp"
#include "collectives/plan.hpp"
#include "core/adaptors.hpp"
#include "core/error.hpp"

namespace shardmark::bench::collectives {
namespace {

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

}  // namespace

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
  add_transport_options(line, options.engine, options.transport);
  line.add("--ranks", {"N", "ranks to start with --transport threads", "the cores, at most 8", "2"},
           [&options](std::string_view option, const std::string& text) {
             options.ranks = parse_count(option, text, 1);
           });
}

void add_device_flags(CommandLine& line, Options& options) {
  add_engine_options(line, options.engine, options.dry_run);
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
           {"NAME",
            "--with-matmul: communication moves between tiles of the product (poll), or a thread "
            "beside each rank moves it (thread)",
            "poll", "thread"},
           [&options](std::string_view option, const std::string& text) {
             options.progress_thread =
                 parse_choice<bool>(option, text, {{"poll", false}, {"thread", true}});
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
  line.add("--dry-run",
           {"", "bytes, steps and scratch per rank of every row; executes nothing", "", ""},
           set_flag(options.dry_run, true));
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
  line.add("--inject-fault",
           {"SPEC",
            "break one rank: KIND:rank=R:op=N with KIND corrupt, nan, exit:CODE, kill, hang, throw "
            "or slow:MICROSECONDS (each op from then on is late)",
            "none", "corrupt:rank=1:op=0"},
           [&options](std::string_view, const std::string& text) {
             (void)parse_fault(text);
             options.fault = text;
           });
}

}  // namespace shardmark::bench::collectives
