#pragma once

#include "bench/collectives/row.hpp"
#include "collectives/choose.hpp"

#include <iosfwd>
#include <span>
#include <string>

namespace shardmark::bench::collectives {

/// The fastest algorithm by size: of those measured in every series of a collective (types,
/// reductions, in and out of place), the one whose worst ratio to the fastest is the smallest; the
/// one of the size below stays unless another is 3 % better. Between two sizes the choice changes
/// at their geometric mean. Throws InputError when nothing was compared.
[[nodiscard]] ChoiceTable make_choices(std::span<const Row> rows);

/// Writes the table, prints its crossovers and returns it. Throws InputError when it cannot be
/// written.
ChoiceTable write_choices(const std::string& path, std::span<const Row> rows, std::ostream& out);

}  // namespace shardmark::bench::collectives
