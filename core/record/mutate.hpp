#pragma once

#include "core/record.hpp"

#include <cstddef>
#include <vector>

namespace shardmark {

/// Positions of the Await ops in a rank's records: the fences a mutation test can delete.
[[nodiscard]] inline std::vector<std::size_t> positions_of_awaits(
    const std::vector<OpRecord>& ops) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (std::holds_alternative<Await>(ops[i].op)) positions.push_back(i);
  return positions;
}

/// The records without the one at `position`; the others keep their `seq`.
[[nodiscard]] inline std::vector<OpRecord> without_op(std::vector<OpRecord> ops,
                                                      std::size_t position) {
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
  return ops;
}

}  // namespace shardmark
