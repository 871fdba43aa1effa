#include "bench/pipeline/balance.hpp"

#include "bench/harness/session.hpp"
#include "bench/harness/statistics.hpp"
#include "bench/harness/together.hpp"
#include "bench/harness/trace.hpp"
#include "bench/pipeline/schedules.hpp"
#include "core/host.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

namespace shardmark::bench::pp {
namespace {

enum Part : std::size_t { embedding, block, head, num_parts };
using PartTimes = std::array<double, num_parts>;

/// A model of one block without a pipeline, of the tp group of `rank`.
Case probe_of(const Case& config, int rank) {
  Case probe = config;
  probe.layer.pipeline = {};
  probe.layer.accumulate_gradients = false;
  probe.layer.shape.layers = 1;
  Parallel& parallel = probe.layer.parallel;
  parallel.pp.size = parallel.dp.size = 1;
  const int tp = parallel.tp.size;
  parallel = parallel.at(rank / tp * tp, rank % tp);
  return probe;
}

/// Kernel time of one profiled iteration by part, from the paths of the ops.
PartTimes times_of(const RankTrace& trace) {
  PartTimes times{};
  for (const RankTrace::Interval& interval : trace.intervals) {
    const std::string& path = interval.path;
    const auto is_in = [&](std::string_view scope) {
      return path.find(fmt::format("/{}", scope)) != std::string::npos;
    };
    const double time_us = interval.end_us - interval.start_us;
    if (is_in("block0"))
      times[block] += time_us;
    else if (is_in("embedding"))
      times[embedding] += time_us;
    else
      times[head] += time_us;
  }
  return times;
}

/// Runs the probes of all cases; memory comes with them.
class Prober {
 public:
  Prober(Transport& transport, const RunnerOptions& options)
      : transport_{transport},
        options_{options},
        arena_{memory_total_bytes()},
        kernels_{options.threads_per_rank, arena_} {}

  pipeline::LayerCosts measure(const Case& config) {
    constexpr int num_warm = 1, num_samples = 5;
    const int tp = config.layer.parallel.tp.size;
    const bool active = transport_.rank() < transport_.size() / tp * tp;
    PartTimes medians{};
    if (active) {
      const Case probe = probe_of(config, transport_.rank());
      const Recording recording =
          record_program(probe.layer, probe.phase, options_.threads_per_rank);
      connect_all(transport_, recording.ops);
      arena_.prefault(recording.tensor_bytes + recording.workspace_bytes);
      const Mesh mesh{{.dp = transport_.size() / tp, .tp = tp}};
      Session session{probe, probe.layer, mesh, options_, false, transport_, arena_, kernels_};
      session.iterate(num_warm);
      std::array<std::vector<double>, num_parts> samples;
      for (int i = 0; i < num_samples; ++i) {
        const PartTimes times =
            times_of(make_trace(transport_.rank(), session.profile(transport_)));
        for (std::size_t part = 0; part < num_parts; ++part) samples[part].push_back(times[part]);
      }
      for (std::size_t part = 0; part < num_parts; ++part) medians[part] = median(samples[part]);
    } else {
      for (int i = 0; i < 2 * num_samples; ++i) transport_.barrier(Transport::Waiting::idle);
    }
    const double num_active = transport_.size() / tp * tp;
    PartTimes mean{};
    for (const PartTimes& rank : exchange_all(transport_, medians))
      for (std::size_t part = 0; part < num_parts; ++part) mean[part] += rank[part] / num_active;
    return {mean[embedding], std::max(mean[block], 1e-3), mean[head]};
  }

 private:
  Transport& transport_;
  RunnerOptions options_;
  Arena arena_;
  Kernels kernels_;
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Costs of the ranks per micro-batch; with DualPipe of pairs of ranks that share the work.
std::vector<double> costs_of(const Case& config, const pipeline::LayerCosts& costs,
                             std::span<const std::int64_t> blocks) {
  const pipeline::Schedule& schedule = *config.layer.pipeline.schedule;
  std::vector<double> ranks = pipeline::cost_of_ranks(costs, blocks, sharing_of(schedule));
  if (schedule.is_two_way())
    for (double& cost : ranks) cost /= 2;
  return ranks;
}

}  // namespace

std::string cost_key(const Case& config) {
  Case alike = config;
  alike.layer.shape.layers = 1;
  const ModelShape& shape = alike.layer.shape;
  return message(shape_key(alike), " vocab ", shape.vocab, " tp ", config.layer.parallel.tp.size);
}

MeasuredCosts measure_costs(Transport& transport, const RunnerOptions& options,
                            const Sweep& sweep) {
  MeasuredCosts costs;
  Prober prober{transport, options};
  for (const Case& config : sweep.cases) {
    if (!config.skip_reason.empty() || config.balance != "measured") continue;
    const std::string key = cost_key(config);
    if (!costs.contains(key)) costs[key] = prober.measure(config);
  }
  return costs;
}

double Rebalanced::gain_pct() const { return 100 * (1 - slowest_by_cost_us / slowest_by_count_us); }

Rebalanced rebalanced(const Case& config, const pipeline::LayerCosts& costs) {
  const PipelineConfig& run = config.layer.pipeline;
  Rebalanced change;
  change.what = describe_pipeline(config);
  change.costs = costs;
  change.by_count = pipeline::split_evenly(config.layer.shape.layers, run.schedule->num_stages);
  change.by_cost = run.blocks;
  const auto judge = [&](const std::vector<std::int64_t>& split, double& slowest_us,
                         double& imbalance) {
    const std::vector<double> ranks = costs_of(config, costs, split);
    slowest_us = std::ranges::max(ranks);
    imbalance = slowest_us / mean_of(ranks);
  };
  judge(change.by_count, change.slowest_by_count_us, change.imbalance_by_count);
  judge(change.by_cost, change.slowest_by_cost_us, change.imbalance_by_cost);
  return change;
}

std::string to_text(const Rebalanced& change) {
  return fmt::format(
      "{}: embedding {:.2f}, block {:.2f}, head {:.2f} ms of a micro-batch: {} blocks instead of "
      "{}; slowest rank {:.2f} instead of {:.2f} ms ({:.1f} % less), slowest over mean {:.2f} "
      "instead of {:.2f}",
      change.what, change.costs.embedding / 1e3, change.costs.block / 1e3, change.costs.head / 1e3,
      fmt::join(change.by_cost, "+"), fmt::join(change.by_count, "+"),
      change.slowest_by_cost_us / 1e3, change.slowest_by_count_us / 1e3, change.gain_pct(),
      change.imbalance_by_cost, change.imbalance_by_count);
}

nlohmann::ordered_json to_json(std::span<const Rebalanced> changes) {
  auto list = nlohmann::ordered_json::array();
  for (const Rebalanced& change : changes)
    list.push_back({{"case", change.what},
                    {"embedding_us", change.costs.embedding},
                    {"block_us", change.costs.block},
                    {"head_us", change.costs.head},
                    {"split_by_count", change.by_count},
                    {"split_by_cost", change.by_cost},
                    {"slowest_rank_by_count_us", change.slowest_by_count_us},
                    {"slowest_rank_by_cost_us", change.slowest_by_cost_us},
                    {"imbalance_by_count", change.imbalance_by_count},
                    {"imbalance_by_cost", change.imbalance_by_cost},
                    {"gain_pct", change.gain_pct()}});
  return list;
}

}  // namespace shardmark::bench::pp
