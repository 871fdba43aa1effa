#pragma once

#include "layers/pipeline/generate.hpp"

#include <optional>

namespace shardmark::pipeline::generators {

/// Without steps; stage s is on rank s mod p.
[[nodiscard]] Schedule empty_loop(std::string_view name, int ranks, int chunks, int micro);
/// Without steps; rank r holds stages r and 2p - 1 - r, so the last rank holds two neighbours.
[[nodiscard]] Schedule empty_v(std::string_view name, int ranks, int micro);

[[nodiscard]] Schedule gpipe(const Request& request);
[[nodiscard]] Schedule one_f_one_b(const Request& request);
[[nodiscard]] Schedule interleaved(const Request& request);
[[nodiscard]] Schedule dualpipe(const Request& request);
[[nodiscard]] Schedule dualpipe_v(const Request& request);

/// The order of forwards and input gradients (no W yet) of zb-h1 and zb-h2: rank r begins with
/// forwards[r] forwards, then I and F take turns.
[[nodiscard]] Schedule one_f_one_i(std::string_view name, int micro, std::span<const int> forwards);
/// That of zb-v.
[[nodiscard]] Schedule zb_v_order(std::string_view name, int ranks, int micro);
/// That of a V-shaped building block repeated every 6 units; `steps` is how many units later the
/// next rank does the same in the first forwards, second forwards, second input gradients and first
/// ones. None if ranks do two things at once whatever the pause before the gradients.
struct BlockSteps {
  int first_forward, second_forward, second_gradient, first_gradient;
};
[[nodiscard]] std::optional<Schedule> repeat_block(std::string_view name, int ranks, int micro,
                                                   const BlockSteps& steps);

/// Activations that a rank must be able to hold for `order` to run at all.
[[nodiscard]] int needed_memory(const Schedule& order);

/// When an idle rank computes a weight gradient: whenever there is one, or not if its next input is
/// known to arrive before that would end.
enum class WeightRule : std::uint8_t { eager, only_in_gaps };
/// Adds the weight gradients to an order of forwards and input gradients, where a rank waits or has
/// no memory for its next forward. `memory_limit` is at least needed_memory(order). n log n.
[[nodiscard]] Schedule fill_weights(const Schedule& order, const Durations& durations,
                                    int memory_limit, WeightRule rule);

}  // namespace shardmark::pipeline::generators
