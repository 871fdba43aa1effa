#pragma once

#include "bench/harness/columns.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/sweep.hpp"
#include "core/transport.hpp"

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

/// Memory that a case takes on its busiest host.
struct MemoryEstimate {
  std::int64_t per_rank_bytes{0}, host_bytes{0};
};
/// From the record backend: tensors and workspace of each rank, plus the serial comparison of
/// --check full. `ranks_on_host` is the largest number of ranks of the case on one host.
[[nodiscard]] MemoryEstimate estimate_memory(const Case& config, const RunnerOptions& options,
                                             int ranks_on_host);

/// Gives cases that exceed `limit_bytes` on a host (or what else `what` says that ranks of one host
/// name share) a skip_reason with the estimate.
void skip_what_does_not_fit(std::vector<Case>& cases, const RunnerOptions& options,
                            const std::vector<Endpoint>& endpoints, std::int64_t limit_bytes,
                            std::string_view what = "host");

/// Whether the row of `config` is among `finished` (see row_key).
[[nodiscard]] bool is_finished(const Case& config, const std::set<std::string>& finished,
                               const RunIdentity& run, const RunnerOptions& options,
                               int world_size);

}  // namespace shardmark::bench
