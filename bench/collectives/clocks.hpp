#pragma once

#include "bench/collectives/cases.hpp"
#include "core/transport.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// Nanoseconds of this host's steady clock.
[[nodiscard]] std::int64_t now_ns();

/// Steady clocks of all ranks on one scale, rank 0's. Ranks of one host share a clock.
struct Clocks {
  std::vector<std::int64_t> offset_ns;  ///< to be added to the rank's own stamps
  std::vector<std::int64_t> bound_ns;   ///< the error is at most this
  /// "clocks: one host, one clock" or the offset and bound of every other host.
  [[nodiscard]] std::string describe(const Transport& transport) const;
};
/// Measures the offset of each host to rank 0's by ping-pong: the round with the shortest round
/// trip decides, and half of it bounds the error. Collective over the world.
[[nodiscard]] Clocks align_clocks(Transport& transport);

}  // namespace shardmark::bench::collectives
