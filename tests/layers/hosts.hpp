#pragma once

// Programs of layers on the cpu backend, on ranks as threads or on the rank of a transport. A case
// is a Split, PipelineCase or ContextCase: it has ranks(), mesh() and on(rank), the config there.

#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/launch.hpp"
#include "layers/check.hpp"
#include "layers/recording.hpp"

#include <cstdint>
#include <vector>

namespace shardmark::test {

/// What one rank needs to run, and to run alone for comparison.
struct Host {
  explicit Host(Transport& transport) : cpu{transport, arena, kernels} {}
  /// The only rank.
  Host() : cpu{alone, arena, kernels} {}
  Arena arena{std::int64_t{1} << 31U};
  Kernels kernels{1, arena};
  ThreadWorld lone_world{1};
  ThreadTransport alone{lone_world, 0};
  CpuBackend cpu;
  CpuBackend serial{alone, arena, kernels};
};

/// body(rank, config, host) on this rank, whose channels are connected for steps of the case.
template <class Case, class Body>
void run_on_rank(Transport& transport, const Case& c, const Body& body) {
  Host host{transport};
  const LayerConfig config = c.on(transport.rank());
  connect_all(transport, record_program(config, Phase::step, 1).ops);
  Rank rank{transport.rank(), c.mesh(), host.cpu};
  body(rank, config, host);
}

/// The same on all ranks of the case, as threads.
template <class Case, class Body>
void run_on_threads(const Case& c, const Body& body) {
  run_threads(c.ranks(), [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    run_on_rank(transport, c, body);
  });
}

/// This rank's part of the case against one rank.
template <class Case>
CheckResult check_rank(Transport& transport, const Case& c) {
  CheckResult result;
  run_on_rank(transport, c, [&](Rank& rank, const LayerConfig& config, Host& host) {
    result = check_against_serial(rank, config, host.serial, 7);
  });
  return result;
}

/// Of all ranks as threads, in their order.
template <class Case>
std::vector<CheckResult> check_on_threads(const Case& c) {
  std::vector<CheckResult> results(static_cast<std::size_t>(c.ranks()));
  run_on_threads(c, [&](Rank& rank, const LayerConfig& config, Host& host) {
    results[static_cast<std::size_t>(rank.id())] =
        check_against_serial(rank, config, host.serial, 7);
  });
  return results;
}

}  // namespace shardmark::test
