#include "bench/pipeline/balance.hpp"

#include "bench/harness/session.hpp"
#include "bench/harness/statistics.hpp"
#include "bench/harness/together.hpp"
#include "bench/harness/trace.hpp"
#include "bench/pipeline/schedules.hpp"
#include "core/functions.hpp"
#include "core/host.hpp"
#include "layers/pipeline/lower.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

namespace shardmark::bench::pp {
namespace {

/// Forward, input gradient and weight gradient of embedding, block and head, in this order.
constexpr std::size_t num_acts = 3, num_times = 9;
using Times = std::array<double, num_times>;

/// A model of one block on one stage, of the tp group of `rank`, whose ops have paths that begin
/// with step/0F0, step/0I0 and step/0W0, or where backward recomputes with step/0F0 and step/0B0.
Case probe_of(const Case& config, int rank) {
  Case probe = config;
  const auto kind = config.layer.recompute == Recompute::none ? pipeline::ScheduleKind::zb_h1
                                                              : pipeline::ScheduleKind::one_f_one_b;
  probe.layer.pipeline = {.schedule_name = "probe",
                          .schedule = std::make_shared<const pipeline::Schedule>(pipeline::lower(
                              pipeline::generate(kind, {1, 1}), pipeline::Lowering::split)),
                          .blocks = {1}};
  probe.layer.shape.layers = 1;
  Parallel& parallel = probe.layer.parallel;
  parallel.pp.size = parallel.dp.size = 1;
  const int tp = parallel.tp.size;
  parallel = parallel.at(rank / tp * tp, rank % tp);
  return probe;
}

/// Kernel time of one profiled iteration by part, from the paths of the ops. A whole backward
/// counts as an input gradient.
Times times_of(const RankTrace& trace) {
  static constexpr std::array<std::string_view, 4> acts{"/0F0/", "/0I0/", "/0W0/", "/0B0/"};
  static constexpr std::array<std::size_t, acts.size()> counts_as{0, 1, 2, 1};
  Times times{};
  for (const RankTrace::Interval& interval : trace.intervals) {
    const auto is_in = [&](std::string_view scope) {
      return interval.path.find(scope) != std::string::npos;
    };
    const std::size_t part = is_in("/embedding") ? 0 : is_in("/block0") ? 1 : 2;
    for (std::size_t act = 0; act < acts.size(); ++act)
      if (is_in(acts[act]))
        times[num_acts * part + counts_as[act]] += interval.end_us - interval.start_us;
  }
  return times;
}

/// Runs the probes of all cases; memory comes with them.
class Prober {
 public:
  Prober(Transport& transport, const RunnerOptions& options, Engine& engine)
      : transport_{transport}, options_{options}, engine_{engine} {}

  PartTimes measure(const Case& config) {
    const int tp = config.layer.parallel.tp.size;
    const int num_active = transport_.size() / tp * tp;
    const bool active = transport_.rank() < num_active;
    Times mine{};
    if (active) {
      mine = profile(config);
    } else {
      for (int i = 0; i < 2 * num_samples; ++i) transport_.barrier(Transport::Waiting::idle);
    }
    const double mine_us = active && num_active > tp ? message_us(config) : 0;
    Times mean{};
    double mean_us = 0;
    for (const Times& rank : exchange_all(transport_, mine))
      for (std::size_t i = 0; i < num_times; ++i) mean[i] += rank[i] / num_active;
    for (const double time_us : exchange_all(transport_, mine_us)) mean_us += time_us / num_active;
    const auto part = [&](std::size_t at, double least_us) {
      return pipeline::StageTimes{std::max(mean[at], least_us), std::max(mean[at + 1], least_us),
                                  std::max(mean[at + 2], least_us)};
    };
    constexpr double clock_us = 1e-3;
    return {part(0, 0), part(num_acts, clock_us), part(2 * num_acts, 0), mean_us};
  }

 private:
  static constexpr int num_samples = 5;

  Times profile(const Case& config) {
    const int tp = config.layer.parallel.tp.size;
    const Case probe = probe_of(config, transport_.rank());
    const Recording recording = record_program(probe.layer, probe.phase, options_.threads_per_rank);
    engine_.connect_all(recording.ops);
    engine_.prefault(recording.tensor_bytes + recording.workspace_bytes);
    const Mesh mesh{{.dp = transport_.size() / tp, .tp = tp}};
    Session session{probe, probe.layer, mesh, options_, false, transport_, engine_};
    session.iterate(1);
    std::array<std::vector<double>, num_times> samples;
    for (int i = 0; i < num_samples; ++i) {
      const Times times = times_of(make_trace(transport_.rank(), session.profile(transport_)));
      for (std::size_t j = 0; j < num_times; ++j) samples[j].push_back(times[j]);
    }
    Times medians{};
    for (std::size_t j = 0; j < num_times; ++j) medians[j] = median(samples[j]);
    return medians;
  }

  /// Every rank sends a boundary tensor to the next and receives one.
  double message_us(const Case& config) {
    using Clock = std::chrono::steady_clock;
    const int tp = config.layer.parallel.tp.size, size = transport_.size() / tp;
    const int position = transport_.rank() / tp;
    const Group line{Axis::pp, transport_.rank() % tp, tp, size, position};
    const auto backend = engine_.make_backend(transport_);
    Rank rank{transport_.rank(), Mesh{{.pp = size, .tp = tp}}, *backend};
    engine_.connect(line, Lane::pp_fwd_send);
    const ModelShape& shape = config.layer.shape;
    const auto boundary = [&] {
      Buffer made =
          rank.allocate({config.layer.parallel.local_tokens(shape.tokens()), shape.hidden},
                        config.layer.dtype, Category::communication);
      fill(rank, made.tensor(), 0.0F);
      return made;
    };
    const Buffer x = boundary(), y = boundary();
    std::vector<double> times_us;
    for (int i = 0; i <= num_samples; ++i) {
      rank.synchronize();
      const Clock::time_point begin = Clock::now();
      send_recv(rank, x.tensor(), (position + 1) % size, y.tensor(), (position + size - 1) % size,
                line, Lane::pp_fwd_send);
      rank.synchronize();
      times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    return std::ranges::min(times_us);
  }

  Transport& transport_;
  RunnerOptions options_;
  Engine& engine_;
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
  return message(shape_key(alike), " vocab ", shape.vocab, ' ',
                 describe_split(config.layer.parallel), " recompute ",
                 name_of(config.layer.recompute));
}

pipeline::LayerCosts PartTimes::costs() const {
  const auto sum = [](const pipeline::StageTimes& part) {
    return part.forward + part.backward_input + part.backward_weight;
  };
  return {sum(embedding), sum(block), sum(head)};
}

pipeline::Durations PartTimes::durations(std::span<const std::int64_t> blocks) const {
  pipeline::Durations durations{.stages = {}, .communication = message};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const auto all = [&](double pipeline::StageTimes::*act) {
      double time = static_cast<double>(blocks[stage]) * block.*act;
      if (stage == 0) time += embedding.*act;
      if (stage + 1 == blocks.size()) time += head.*act;
      return time;
    };
    using S = pipeline::StageTimes;
    durations.stages.push_back(
        {all(&S::forward), all(&S::backward_input), all(&S::backward_weight)});
  }
  return durations;
}

std::string to_text(const PartTimes& times) {
  const auto part = [](std::string_view name, const pipeline::StageTimes& t) {
    return fmt::format("{} {:.3f} + {:.3f} + {:.3f}", name, t.forward / 1e3, t.backward_input / 1e3,
                       t.backward_weight / 1e3);
  };
  return fmt::format("forward + input gradient + weight gradient, ms: {}; {}; {}; message {:.3f}",
                     part("embedding", times.embedding), part("block", times.block),
                     part("head", times.head), times.message / 1e3);
}

MeasuredTimes measure_times(Transport& transport, const RunnerOptions& options, const Sweep& sweep,
                            Engine& engine) {
  MeasuredTimes times;
  Prober prober{transport, options, engine};
  for (const Case& config : sweep.cases) {
    if (!config.skip_reason.empty()) continue;
    const std::string key = cost_key(config);
    if (!times.contains(key)) times[key] = prober.measure(config);
  }
  return times;
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
