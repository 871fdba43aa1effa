#pragma once

#include "bench/analyze/options.hpp"

#include <iosfwd>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// Reads, analyses and prints what the options ask for: the summary to `out`, files that are left
/// out or break off to `problems`. Returns the exit code: 0, or 1 if there was such a file. Throws
/// InputError for inputs that mean nothing.
[[nodiscard]] int run(const Options& options, const std::vector<std::string>& command_line,
                      std::ostream& out, std::ostream& problems);

}  // namespace shardmark::bench::analyze
