#pragma once

#include "collectives/plan.hpp"

#include <string>

namespace shardmark {

/// A slot in words, "output slot 3", and as texts write it, "out3".
[[nodiscard]] std::string describe_slot(const Plan& plan, int slot);
[[nodiscard]] std::string short_slot(const Plan& plan, int slot);

}  // namespace shardmark
