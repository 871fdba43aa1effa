// shardmark-pp: runs pipeline schedules over the stages of a transformer and says where the time
// goes. Runs on the harness of shardmark-tp; bench/pipeline has what is its own.

#include "bench/harness/launch.hpp"
#include "bench/pipeline/options.hpp"
#include "bench/pipeline/print.hpp"
#include "bench/pipeline/run.hpp"

#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace shardmark;
using namespace shardmark::bench;

PreparedProgram prepare(pp::Options options, const std::vector<std::string>& command_line) {
  PreparedProgram program{pp::launch_request(options), options.base.out, {}, {}};
  program.answer_alone = [options](int world_size, bool is_first) -> std::optional<int> {
    const bool prints_alone = options.print && !options.fit;
    if (options.base.print.empty() && !options.base.dry_run && !prints_alone) return std::nullopt;
    if (!is_first) return 0;
    if (!options.base.print.empty())
      std::cout << options.base.print << std::flush;
    else if (prints_alone)
      std::cout << pp::print_schedules(options, world_size) << std::flush;
    else
      return pp::run_dry(options, world_size);
    return 0;
  };
  program.run = [options = std::move(options), command_line](Transport& transport,
                                                             const InterruptFlag& interrupt) {
    pp::Options mine = options;
    mine.base.runner.interrupted = [&interrupt] { return interrupt.is_set(); };
    return pp::run(mine, command_line, transport);
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    return launch_program(argc, argv, [&](const std::vector<std::string>& arguments) {
      return prepare(pp::parse_options(arguments), {argv, argv + argc});
    });
  });
}
