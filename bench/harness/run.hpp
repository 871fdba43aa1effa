#pragma once

#include "bench/harness/options.hpp"
#include "core/transport.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// Measures or dumps everything the options ask for on this rank and returns the exit
/// code, the same on all ranks: 0, 1 when a row failed, 2 when no row could run. Throws InputError
/// before anything is measured, Error when results cannot be kept. `Interrupted` passes through
/// after the finished rows are safe. Collective.
[[nodiscard]] int run(const Options& options, const std::vector<std::string>& command_line,
                      Transport& transport);

/// Prints what `--dry-run` shows and returns the exit code. `world_size` only says which degrees
/// are meant when --tp was not given.
[[nodiscard]] int run_dry(Options options, int world_size);

}  // namespace shardmark::bench
