#include "bench/harness/plan.hpp"

#include "layers/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace shardmark::bench {
namespace {

std::int64_t bytes_of_rank(const LayerConfig& config, Phase phase, int num_threads) {
  const Recording recording = record_program(config, phase, num_threads);
  return recording.tensor_bytes + recording.workspace_bytes;
}

/// The largest of all ranks': stages differ.
std::int64_t bytes_of_busiest(const LayerConfig& config, Phase phase, int num_threads) {
  const Parallel& parallel = config.parallel;
  const int ranks_per_position = parallel.num_model_ranks() / parallel.pp.size;
  std::int64_t most = 0;
  for (int position = 0; position < parallel.pp.size; ++position) {
    LayerConfig rank = config;
    rank.parallel = parallel.at(0, position * ranks_per_position);
    most = std::max(most, bytes_of_rank(rank, phase, num_threads));
  }
  return most;
}

/// The largest number of the first `num_ranks` ranks that share a host.
int most_on_one_host(const std::vector<Endpoint>& endpoints, int num_ranks) {
  std::map<std::string, int> counts;
  int most = 0;
  for (const Endpoint& at : endpoints)
    if (at.rank < num_ranks) most = std::max(most, ++counts[at.host]);
  return most;
}

}  // namespace

MemoryEstimate estimate_memory(const Case& config, const RunnerOptions& options,
                               int ranks_on_host) {
  MemoryEstimate estimate;
  estimate.per_rank_bytes = bytes_of_busiest(config.layer, config.phase, options.threads_per_rank);
  if (usable_check_mode(options.check, config.layer.parallel.num_ranks()) == CheckMode::full) {
    LayerConfig serial = config.layer;
    serial.parallel = Parallel{};
    serial.pipeline = {};
    serial.pipeline.blocks = {serial.shape.layers};
    // The comparison runs both programs, step by step, before the timed one is built.
    const std::int64_t both = bytes_of_rank(serial, Phase::step, options.threads_per_rank) +
                              bytes_of_busiest(config.layer, Phase::step, options.threads_per_rank);
    estimate.per_rank_bytes = std::max(estimate.per_rank_bytes, both);
  }
  estimate.host_bytes = estimate.per_rank_bytes * ranks_on_host;
  return estimate;
}

void skip_what_does_not_fit(std::vector<Case>& cases, const RunnerOptions& options,
                            const std::vector<Endpoint>& endpoints, std::int64_t limit_bytes,
                            std::string_view what) {
  const int world_size = static_cast<int>(endpoints.size());
  for (Case& config : cases) {
    if (!config.skip_reason.empty()) continue;
    const int ranks = config.layer.parallel.num_ranks();
    const int num_ranks = options.replicate ? world_size / ranks * ranks : ranks;
    const int sharing = most_on_one_host(endpoints, num_ranks);
    const MemoryEstimate estimate = estimate_memory(config, options, sharing);
    if (estimate.host_bytes <= limit_bytes) continue;
    constexpr double GB = 1e9;
    config.skip_reason = fmt::format(
        "needs {:.2f} GB on one {} ({} rank{} x {:.2f} GB{}), but {:.2f} GB are available; lower "
        "batch, seq or hidden, or raise {} over more {}s",
        static_cast<double>(estimate.host_bytes) / GB, what, sharing, sharing == 1 ? "" : "s",
        static_cast<double>(estimate.per_rank_bytes) / GB,
        usable_check_mode(options.check, ranks) == CheckMode::full ? " with --check full" : "",
        static_cast<double>(limit_bytes) / GB,
        config.layer.parallel.context.is_split() ? "cp"
        : config.layer.parallel.pp.size > 1      ? "pp"
                                                 : "tp",
        what);
  }
}

bool is_finished(const Case& config, const std::set<std::string>& finished, const RunIdentity& run,
                 const RunnerOptions& options, int world_size) {
  if (finished.empty()) return false;
  Result result;
  result.config = config;
  result.world_size = world_size;
  result.replicated = options.replicate;
  return finished.contains(row_key({result, run}));
}

}  // namespace shardmark::bench
