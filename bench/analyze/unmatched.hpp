#pragma once

#include "bench/analyze/options.hpp"
#include "bench/analyze/recording.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// A sentence for each --comm-pattern that no further kernel has in its name, and each --axis-of
/// whose group no rank has.
[[nodiscard]] std::vector<std::string> unmatched_options(const Recording& recording,
                                                         const Options& options);

/// A sentence if --window ends after the last device work of all ranks; empty without any work.
/// Throws InputError if it begins there. `offset_ns`: of the clocks, as Recording::ranks.
[[nodiscard]] std::vector<std::string> beyond_work(const Recording& recording,
                                                   const std::vector<std::int64_t>& offset_ns,
                                                   const Span& window);

}  // namespace shardmark::bench::analyze
