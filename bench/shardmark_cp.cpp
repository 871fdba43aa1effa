// shardmark-cp: times attention over a sequence that is split across ranks, and says which scheme
// wins and why. Runs on the harness of shardmark-tp; bench/context has what is its own.

#include "bench/context/options.hpp"
#include "bench/context/run.hpp"
#include "bench/harness/launch.hpp"

#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace shardmark;
using namespace shardmark::bench;

PreparedProgram prepare(context::Options options, const std::vector<std::string>& command_line) {
  PreparedProgram program{context::launch_request(options), options.base.out, {}, {}};
  program.answer_alone = [options](int world_size, bool is_first) -> std::optional<int> {
    if (options.base.print.empty() && !options.base.dry_run) return std::nullopt;
    if (!is_first) return 0;
    if (options.base.print.empty()) return context::run_dry(options, world_size);
    std::cout << options.base.print << std::flush;
    return 0;
  };
  program.run = [options = std::move(options), command_line](Transport& transport,
                                                             const InterruptFlag& interrupt) {
    context::Options mine = options;
    mine.base.runner.interrupted = [&interrupt] { return interrupt.is_set(); };
    return context::run(mine, command_line, transport);
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    return launch_program(argc, argv, [&](const std::vector<std::string>& arguments) {
      return prepare(context::parse_options(arguments), {argv, argv + argc});
    });
  });
}
