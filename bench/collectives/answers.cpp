#include "bench/collectives/cases.hpp"
#include "bench/collectives/dry_run.hpp"
#include "bench/collectives/import.hpp"
#include "bench/collectives/run.hpp"
#include "core/error.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

namespace shardmark::bench::collectives {
namespace {

/// Text on stdout, or a picture in a file. All ranks are taken to be on one host.
void show_plans(const Options& options, int world_size) {
  const World world = make_world(
      options, 0, std::vector<std::string>(static_cast<std::size_t>(world_size), "host"));
  std::vector<const Plan*> plans;
  const std::vector<Series> all = expand(options, world);
  for (const Series& series : all)
    for (const Way& way : series.ways)
      if (way.plan) plans.push_back(way.plan.get());
  if (plans.empty())
    throw InputError{"there is no plan to show; name one, for example --algorithm ring"};
  if (options.print_plan)
    for (const Plan* plan : plans) std::cout << to_text(*plan);
  std::cout << std::flush;
  if (options.svg_file.empty()) return;
  if (plans.size() > 1)
    throw InputError{message("--svg ", options.svg_file, " holds one plan, but ", plans.size(),
                             " are asked for; name one collective and one --algorithm")};
  std::ofstream file{options.svg_file};
  file << to_svg(*plans.front()) << std::flush;
  if (!file)
    throw InputError{message("cannot write ", options.svg_file, ": ", std::strerror(errno))};
}

}  // namespace

std::optional<int> answer_alone(const Options& options, int world_size, bool is_first) {
  const bool importing = !options.import_files.empty();
  const bool shows_plans = options.print_plan || !options.svg_file.empty();
  if (options.print.empty() && !importing && !shows_plans && !options.dry_run) return std::nullopt;
  if (!is_first) return 0;
  if (importing) return run_import(options.import_files, options.out, std::cout);
  if (options.print.empty() && options.dry_run) return dry_run(std::cout, options, world_size);
  if (shows_plans)
    show_plans(options, world_size);
  else
    std::cout << options.print << std::flush;
  return 0;
}

}  // namespace shardmark::bench::collectives
