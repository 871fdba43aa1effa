#pragma once

#include "collectives/plan.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace shardmark {

/// Elements that `member` sends when the algorithm of `plan` does its collective, by the closed
/// form in the head of the algorithm's file: from the numbers of ranks and hosts, the root and the
/// sizes of blocks and slots, never from the plan's steps. Exact also where blocks do not divide
/// evenly, so that it equals BoundPlan::bytes_sent over the element's size; a difference is an
/// error in one of them. `hosts` as for make_plan; `counts` those of all_to_all_v, whose blocks
/// have no one size. Nothing for a plan that no algorithm of ours made (which one, its name tells).
[[nodiscard]] std::optional<std::int64_t> formula_numel_sent(
    const Plan& plan, std::span<const int> hosts, int member, std::int64_t block_numel,
    std::span<const std::int64_t> counts = {});

}  // namespace shardmark
