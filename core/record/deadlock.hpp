#pragma once

#include "core/record.hpp"

#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// Runs the lanes of all ranks without data: a lane is in order, Await holds it until the Signal
/// was reached, a collective ends when the lanes of all members have reached it, a SendRecv when
/// its send has met a receive and its receive a send (as with rendezvous).
///
/// Element r of `ranks` holds rank r's records in submission order. Returns one sentence per lane
/// that cannot finish, with the op it is stuck at and whom it waits for; empty: all lanes finish.
[[nodiscard]] std::vector<std::string> find_deadlock(std::span<const std::vector<OpRecord>> ranks);

}  // namespace shardmark
