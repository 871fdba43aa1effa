// shardmark-analyze: where the time of a run goes that was recorded elsewhere. Options in, files
// into one Recording, a Report of it, and that into the outputs (bench/analyze/run.cpp).

#include "bench/analyze/options.hpp"
#include "bench/analyze/run.hpp"
#include "core/launch.hpp"

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  using namespace shardmark::bench;
  return shardmark::run_main([&] {
    const std::vector<std::string> command_line{argv, argv + argc};
    const analyze::Options options =
        analyze::parse_options({command_line.begin() + 1, command_line.end()});
    if (options.print.empty()) return analyze::run(options, command_line, std::cout, std::cerr);
    std::cout << options.print << std::flush;
    return 0;
  });
}
