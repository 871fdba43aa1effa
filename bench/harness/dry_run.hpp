#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sweep.hpp"

#include <iosfwd>

namespace shardmark::bench {

/// Prints what every case would do, from the record backend: operations of each rank, FLOPs, bytes,
/// peak memory by category, communication by formula and as counted, and what the checkers for
/// races, matching and deadlock find. Returns false if they found something.
[[nodiscard]] bool dry_run(std::ostream& out, const Options& options, const Sweep& sweep);

}  // namespace shardmark::bench
