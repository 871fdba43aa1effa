#include "bench/collectives/options.hpp"

#include "bench/collectives/flags.hpp"
#include "bench/harness/quantity.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace shardmark::bench::collectives {
namespace {

constexpr std::int64_t largest_size = std::int64_t{1} << 46U;

constexpr const char* description =
    "shardmark-collectives: time collectives as nccl-tests does, natively and as our own "
    "algorithms.\n"
    "Sizes are base 2 (K, M, G = 1024, 1024^2, 1024^3 bytes), rates are base 10 (GB = 1e9 bytes).";

constexpr const char* examples =
    "Examples:\n"
    "  mpirun -n 2 shardmark-collectives all_reduce -b 8 -e 64M -f 2\n"
    "      the table of nccl-tests\n"
    "  shardmark-collectives all_reduce --ranks 4 -b 1K -e 1M -f 4 --algorithm all\n"
    "      every algorithm, interleaved, on four threads of this process\n"
    "  mpirun -n 2 shardmark-collectives all_reduce -b 8 -e 64M -f 2 --algorithm all --tune "
    "choice.txt\n"
    "  mpirun -n 2 shardmark-collectives all_reduce -b 8 -e 64M -f 2 --algorithm auto --tuning "
    "choice.txt\n"
    "      write a table of the fastest algorithm by size, and use it\n"
    "  mpirun -n 2 shardmark-collectives all_reduce -b 8 -e 64M -f 2 --algorithm auto,all --tune "
    "choice.txt\n"
    "      the same in one run: a first pass makes the table, the rows are those of a second one\n"
    "  mpirun -n 4 shardmark-collectives all_gather -b 1M -e 1M --groups tp=2,dp=2 --axis dp\n"
    "      both dp groups at once, and one alone\n"
    "  mpirun -n 8 shardmark-collectives all_reduce -b 8 -e 64M -f 2 --backend cuda\n"
    "      between GPUs by NCCL; --transport staged lets ranks share one\n"
    "  mpirun -n 2 shardmark-collectives all_reduce -b 1M -e 1M --skew-us 5000\n"
    "      the last rank is late: the others wait, the transfer does not change\n"
    "Exit code: 0 done, 1 a row failed or a wrong result, 2 bad input, 128 + signal interrupted.";

void check_sizes(const Options& options) {
  if (options.min_bytes > options.max_bytes)
    throw InputError{message("-b ", options.min_bytes, " is above -e ", options.max_bytes,
                             "; a sweep goes from the smaller to the larger, for example -b 8 -e "
                             "64M -f 2")};
}

void check_together(const Options& options) {
  if (options.resume && options.out.empty())
    throw InputError{"--resume needs the folder to go on with; add --out DIR"};
  const auto has = [&](std::string_view name) {
    return std::ranges::find(options.algorithms, name) != options.algorithms.end();
  };
  if (has("auto") && options.tuning_file.empty() && options.tune_file.empty())
    throw InputError{
        "--algorithm auto needs a table of this machine: --tuning FILE, which a run with "
        "--algorithm all --tune FILE writes; or --algorithm auto,all --tune FILE, which makes and "
        "uses it"};
  if (!has("auto") && !options.tuning_file.empty())
    throw InputError{"--tuning is the table of --algorithm auto; add that, or leave out --tuning"};
  if (options.pattern &&
      std::ranges::find(options.collectives, Collective::send_recv) == options.collectives.end())
    throw InputError{"--pattern is of send_recv; name that collective, or leave out --pattern"};
  if (options.axis && !options.groups)
    throw InputError{message("--axis ", name_of(*options.axis),
                             " is one of --groups; add it, for "
                             "example --groups ",
                             name_of(*options.axis), "=2")};
  if (options.progress_thread && options.matmul.empty())
    throw InputError{
        "--progress thread is about the product of --with-matmul; add it, for example "
        "--with-matmul 512,512,512"};
  if (!options.plan_file.empty() && options.collectives.size() > 1)
    throw InputError{"--plan is one plan of one collective; name that collective only"};
  const std::string gpu_option = option_of_gpus(options.engine);
  for (const auto& [given, name] : {std::pair{!options.out.empty(), std::string{"--out"}},
                                    {!options.tune_file.empty(), "--tune"},
                                    {options.print_plan, "--print-plan"},
                                    {!gpu_option.empty(), gpu_option}})
    if (options.dry_run && given)
      throw InputError{
          message("--dry-run runs nothing that ", name, " could be for; leave out one of them")};
  const std::size_t num_compared = options.algorithms.size() - (has("auto") ? 1 : 0);
  if (!options.tune_file.empty() && num_compared < 2 && !has("all"))
    throw InputError{"--tune compares algorithms, but only one is asked for; give --algorithm all"};
  if (options.skew_us > 0 && !options.waits)
    throw InputError{"--skew-us is seen in the arrival stamps; leave out --no-waits"};
}

}  // namespace

std::string_view name_of(Scope scope) {
  constexpr std::array<std::string_view, 4> names{"rank0", "avg", "min", "max"};
  return names[static_cast<std::size_t>(scope)];
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line{{"shardmark-collectives", description, examples}};
  add_flags(line, options);
  options.print = line.parse(arguments);
  if (!options.print.empty() || !options.import_files.empty()) return options;
  if (options.collectives.empty())
    throw InputError{
        "no collective named; for example: shardmark-collectives all_reduce -b 8 -e 64M -f 2 (all: "
        "every one; --list names them)"};
  check_sizes(options);
  check_together(options);
  check_engine_options(options.engine);
  // A table is used for long: it may take longer to make.
  constexpr int samples_for_a_table = 50;
  if (!options.tune_file.empty())
    options.min_samples = std::max(options.min_samples, samples_for_a_table);
  return options;
}

bool tunes_first(const Options& options) {
  return !options.tune_file.empty() && options.tuning_file.empty() &&
         std::ranges::find(options.algorithms, "auto") != options.algorithms.end();
}

bool is_sweep(const Options& options) {
  return options.collectives.size() > 1 || options.dtypes.size() > 1 ||
         options.reductions.size() > 1;
}

std::vector<std::int64_t> sizes_of(const Options& options) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = options.min_bytes; size <= options.max_bytes;) {
    sizes.push_back(size);
    if (options.min_bytes == options.max_bytes) break;
    if (options.step_factor > 0) {
      // A factor close to 1 still moves on.
      const double next = std::floor(static_cast<double>(size) * options.step_factor);
      size = std::max(size + 1, static_cast<std::int64_t>(next));
    } else {
      size += options.step_bytes;
    }
    if (sizes.size() > 100'000)
      throw InputError{message("-b ", options.min_bytes, " -e ", options.max_bytes,
                               " makes more than 100000 sizes; give a factor, for example -f 2")};
  }
  return sizes;
}

LaunchRequest launch_request(const Options& options) {
  int ranks = default_ranks();
  if (options.groups) ranks = Mesh{*options.groups}.size();
  return {"shardmark-collectives", options.transport, options.ranks, ranks};
}

std::int64_t parse_bytes(std::string_view option, std::string_view text) {
  double unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const char suffix = text.back();
    if (suffix == 'k' || suffix == 'K') unit = 1024.0;
    if (suffix == 'm' || suffix == 'M') unit = 1024.0 * 1024;
    if (suffix == 'g' || suffix == 'G') unit = 1024.0 * 1024 * 1024;
    if (unit > 1) digits.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value))
    throw InputError{message(option, ": '", text,
                             "' is not a size: bytes, or K, M or G of them (base 2); try 8, 64K, "
                             "1M, 2G, or 1024G for a T")};
  const double bytes = value * unit;
  if (bytes < 1) throw InputError{message(option, ": '", text, "' must be at least 1 byte")};
  if (bytes > static_cast<double>(largest_size))
    throw InputError{message(option, ": '", text, "' is too large; the largest size is 65536G")};
  if (bytes != std::floor(bytes))
    throw InputError{message(option, ": '", text, "' is not a whole number of bytes")};
  return static_cast<std::int64_t>(bytes);
}

Mesh::Degrees parse_groups(std::string_view option, std::string_view text) {
  Mesh::Degrees degrees;
  const std::vector<std::pair<std::string_view, int*>> axes{{"dp", &degrees.dp},
                                                            {"pp", &degrees.pp},
                                                            {"cp", &degrees.cp},
                                                            {"ep", &degrees.ep},
                                                            {"tp", &degrees.tp}};
  std::vector<int*> given;
  for (const std::string& part : split_list(option, text)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos)
      throw InputError{message(option, ": '", part, "' is not AXIS=N; try tp=4,dp=2")};
    int* const degree = parse_choice<int*>(option, part.substr(0, equals), axes);
    if (std::ranges::find(given, degree) != given.end())
      throw InputError{message(option, ": ", part.substr(0, equals), " is given more than once")};
    given.push_back(degree);
    *degree = parse_count(option, part.substr(equals + 1), 1);
  }
  std::int64_t product = 1;
  for (const auto& [name, degree] : axes) {
    product *= *degree;
    if (product > std::numeric_limits<int>::max())
      throw InputError{message(option, ": '", text, "' needs too many ranks")};
  }
  return degrees;
}

}  // namespace shardmark::bench::collectives
