// shardmark-tp: times tensor-parallel transformer layers. Options in, cases out of them, one Runner
// per rank, one Result per case, and sinks that keep and show it (bench/harness/run.cpp).

#include "bench/harness/launch.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/run.hpp"

#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace shardmark;
using namespace shardmark::bench;

PreparedProgram prepare(Options options, const std::vector<std::string>& command_line) {
  PreparedProgram program{launch_request(options), options.out, {}, {}};
  program.answer_alone = [options](int world_size, bool is_first) -> std::optional<int> {
    if (options.print.empty() && !options.dry_run) return std::nullopt;
    if (!is_first) return 0;
    if (options.print.empty()) return run_dry(options, world_size);
    std::cout << options.print << std::flush;
    return 0;
  };
  program.run = [options = std::move(options), command_line](Transport& transport,
                                                             const InterruptFlag& interrupt) {
    Options mine = options;
    mine.runner.interrupted = [&interrupt] { return interrupt.is_set(); };
    const auto engine = open_engine(mine, transport);
    return run(tensor_parallel_bench(mine), mine, command_line, transport, engine.get());
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    return launch_program(argc, argv, [&](const std::vector<std::string>& arguments) {
      return prepare(parse_options(arguments), {argv, argv + argc});
    });
  });
}
