#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sweep.hpp"
#include "core/transport.hpp"

#include <compare>
#include <map>
#include <optional>
#include <string>

namespace shardmark::bench::context {

/// Ways to exchange between the members of a group. `ring`: each sends to the next, all at once.
enum class Exchange : std::uint8_t { ring, all_to_all, all_gather, reduce_scatter, all_reduce };
[[nodiscard]] std::string_view name_of(Exchange exchange);
/// How an op exchanges; nothing if it does not, or in none of these ways.
[[nodiscard]] std::optional<Exchange> exchange_of(const Op& op);

/// time = latency + bytes / bandwidth, where bytes are those across one member's link.
struct LinkRate {
  double latency_us{0}, bandwidth_GBps{0};
  [[nodiscard]] double time_us(double bytes) const;
};

/// What predictions are made of, measured in this run while all ranks work. A rank's number is the
/// slowest one's.
struct MachineRates {
  struct LinkKey {
    Exchange exchange;
    int stride, size;
    auto operator<=>(const LinkKey&) const = default;
  };
  struct AttentionKey {
    DType dtype;
    std::int64_t head_dim;
    bool backward;
    auto operator<=>(const AttentionKey&) const = default;
  };
  std::map<LinkKey, LinkRate> links;
  std::map<AttentionKey, double> attention_tflops;  ///< executed FLOPs of visible pairs
  std::map<DType, double> matmul_tflops;            ///< empty unless a case has matmuls
  double memory_GBps{0};                            ///< read and written by a copy
  bool one_host{true}, oversubscribed{false};       ///< of the ranks that measured

  /// The link of `exchange` over `group`, or the nearest that was measured: another exchange over
  /// it, else over as many ranks.
  [[nodiscard]] const LinkRate& link(Exchange exchange, const Group& group) const;
  /// Why these rates are not to be believed; empty if nothing speaks against them.
  [[nodiscard]] std::string doubts() const;
  /// Microseconds that an op takes once nobody is waited for.
  [[nodiscard]] double time_us(const Op& op) const;
};

/// Whether any case that can run splits a sequence, so that rates tell something.
[[nodiscard]] bool needs_rates(const Sweep& sweep);
/// Measures what the cases of `sweep` that can run are made of; about a second. Collective over the
/// world; complete and equal on all ranks.
[[nodiscard]] MachineRates measure_rates(Transport& transport, const RunnerOptions& options,
                                         const Sweep& sweep, Engine& engine);

}  // namespace shardmark::bench::context
