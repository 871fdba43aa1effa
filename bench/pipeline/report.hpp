#pragma once

#include "bench/harness/result.hpp"

#include <iosfwd>

namespace shardmark::bench::pp {

/// What to print once above a table whose rows are followed by `print_times`: what its words mean.
extern const char* const times_conventions;

/// Below a measured row: bubble against its theory and the replayed step. With `verbose` where the
/// window went on every rank. Nothing for a row without a pipeline.
void print_times(std::ostream& out, const Result& result, bool verbose);

}  // namespace shardmark::bench::pp
