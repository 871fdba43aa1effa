// shardmark-collectives: times collectives and explains the times. Options in, series of sizes out
// of them, one Meter per rank, one Row per line, and a Report that keeps and shows them
// (bench/collectives/run.cpp).

#include "bench/collectives/options.hpp"
#include "bench/collectives/run.hpp"
#include "bench/harness/launch.hpp"

#include <string>
#include <vector>

namespace {

using namespace shardmark;
using namespace shardmark::bench;

PreparedProgram prepare(const collectives::Options& options,
                        const std::vector<std::string>& command_line) {
  PreparedProgram program{collectives::launch_request(options), options.out, {}, {}};
  program.answer_alone = [options](int world_size, bool is_first) {
    return collectives::answer_alone(options, world_size, is_first);
  };
  program.run = [options, command_line](Transport& transport, const InterruptFlag& interrupt) {
    return collectives::run(options, command_line, transport,
                            [&interrupt] { return interrupt.is_set(); });
  };
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    return launch_program(argc, argv, [&](const std::vector<std::string>& arguments) {
      return prepare(collectives::parse_options(arguments), {argv, argv + argc});
    });
  });
}
