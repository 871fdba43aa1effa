#pragma once

#include "bench/pipeline/options.hpp"
#include "core/transport.hpp"

#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// Measures or dumps what the options ask for on this rank; returns the exit code, the same on all
/// ranks, as bench::run does. Collective.
[[nodiscard]] int run(const Options& options, const std::vector<std::string>& command_line,
                      Transport& transport);

/// Prints what `--dry-run` shows and returns the exit code. `world_size` only says which degree is
/// meant when --pp was not given.
[[nodiscard]] int run_dry(const Options& options, int world_size);

}  // namespace shardmark::bench::pp
