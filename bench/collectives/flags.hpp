#pragma once

#include "bench/collectives/options.hpp"
#include "bench/harness/command_line.hpp"

namespace shardmark::bench::collectives {

/// The options of shardmark-collectives. `options` must outlive the parse.
void add_flags(CommandLine& line, Options& options);

}  // namespace shardmark::bench::collectives
