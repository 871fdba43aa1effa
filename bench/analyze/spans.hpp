#pragma once

#include "profiler/analyse.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace shardmark::bench {

/// What is looked at of one rank: disjoint spans by time, on its own clock; nothing: all of it.
using ChosenSpans = std::optional<std::vector<Span>>;

[[nodiscard]] bool contains(const ChosenSpans& chosen, std::int64_t time_ns);
/// Whether any of `time` lies in them, as an Account has it: what begins before one of them ends
/// and ends after it begins.
[[nodiscard]] bool lies_in(const ChosenSpans& chosen, const Span& time);
/// How much of `time` lies in them; 0 if it ends before it starts.
[[nodiscard]] std::int64_t length_in(const ChosenSpans& chosen, const Span& time);
/// What of united spans lies in them.
[[nodiscard]] std::vector<Span> cut_to(const ChosenSpans& chosen, std::vector<Span> united);

}  // namespace shardmark::bench
