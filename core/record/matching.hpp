#pragma once

#include "core/record.hpp"

#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// Checks that every member of a group submits the same communication on a lane: the same sequence
/// of collectives (kind, dtype, bytes, reduction, root, counts) and, where the members name their
/// scopes alike, of paths; and that what each member sends to another is what that receives from
/// it, in order. On the two lanes of a channel (channel.hpp) a rank does each of these on one.
/// Also finds calls whose group has ranks that do not exist, or another rank in the caller's place.
///
/// Element r of `ranks` holds rank r's records in submission order. Returns one sentence per
/// problem, of each member only its first difference from the group's first member, of each pair
/// only the first message that differs; empty: clean.
[[nodiscard]] std::vector<std::string> check_matching(std::span<const std::vector<OpRecord>> ranks);

}  // namespace shardmark
