#pragma once

#include "core/transport.hpp"

#include <functional>

namespace shardmark::bench {

/// Runs `action` on rank 0 while the others wait. An error of it is thrown on every rank, so that
/// all end alike. Collective.
void on_rank_0(Transport& transport, const std::function<void()>& action);

}  // namespace shardmark::bench
