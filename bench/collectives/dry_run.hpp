#pragma once

#include "bench/collectives/options.hpp"

#include <iosfwd>

namespace shardmark::bench::collectives {

/// Prints what each row would move, without running anything, and returns the exit code: 2 when no
/// row could run. All ranks are taken to be on one host. Throws InputError as `expand` does.
[[nodiscard]] int dry_run(std::ostream& out, const Options& options, int world_size);

}  // namespace shardmark::bench::collectives
