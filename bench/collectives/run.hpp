#pragma once

#include "bench/collectives/options.hpp"
#include "core/transport.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// Measures everything the options ask for on this rank and returns the exit code, the same on all
/// ranks: 0, 1 when a row failed, 2 when no row could run. Throws InputError before anything is
/// measured. `Interrupted` passes through after the finished rows are safe. Collective.
[[nodiscard]] int run(const Options& options, const std::vector<std::string>& command_line,
                      Transport& transport, const std::function<bool()>& interrupted);

/// What needs no ranks (help, lists, plans as text or picture, imports): the exit code, or nothing.
/// Only the first rank prints.
[[nodiscard]] std::optional<int> answer_alone(const Options& options, int world_size,
                                              bool is_first);

}  // namespace shardmark::bench::collectives
