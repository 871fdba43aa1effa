#pragma once

#include "bench/analyze/diff.hpp"
#include "bench/analyze/report.hpp"

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

namespace shardmark::bench::analyze {

/// The report for a reader: where the time goes per rank and step, collectives, ranks against each
/// other, stages, top kernels, gaps, warnings, and last the verdict.
void print_summary(std::ostream& out, const Report& report);
// Its parts about single ranks (summary_tops.cpp).
void print_collectives(std::ostream& out, const Report& report);
void print_kernels(std::ostream& out, const Report& report);
void print_gaps(std::ostream& out, const Report& report);

/// What changed between two runs, largest first, at most `top` of each kind.
void print_diff(std::ostream& out, const RunDiff& diff, std::size_t top);

/// `text` in at most `width` columns; the middle is left out of a longer one.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t width);

}  // namespace shardmark::bench::analyze
