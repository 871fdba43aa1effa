#include "bench/harness/pipeline_times.hpp"

#include "bench/harness/statistics.hpp"
#include "core/error.hpp"
#include "core/record/describe.hpp"
#include "layers/pipeline/replay.hpp"
#include "sim/measured.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace shardmark::bench {
namespace {

using pipeline::Act;
using pipeline::Action;

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

constexpr std::array split_numbers{
    &PipelineSplit::window_us,     &PipelineSplit::forward_us,  &PipelineSplit::backward_us,
    &PipelineSplit::input_us,      &PipelineSplit::weight_us,   &PipelineSplit::other_us,
    &PipelineSplit::collective_us, &PipelineSplit::transfer_us, &PipelineSplit::exposed_transfer_us,
    &PipelineSplit::gap_us,        &PipelineSplit::wait_us,     &PipelineSplit::blocked_us,
    &PipelineSplit::idle_us,       &PipelineSplit::start_us,    &PipelineSplit::drain_us,
    &PipelineSplit::bubble_us,     &PipelineSplit::residual_us, &PipelineSplit::unexplained_us};

std::optional<Action> parse_compute_action(std::string_view text) {
  Action action;
  const char* const end = text.data() + text.size();
  const auto [after_stage, no_stage] = std::from_chars(text.data(), end, action.stage);
  if (no_stage != std::errc{} || after_stage == end) return std::nullopt;
  constexpr std::string_view letters = "FBIW";  // in the order of Act
  const std::size_t act = letters.find(*after_stage);
  if (act == std::string_view::npos) return std::nullopt;
  action.act = static_cast<Act>(act);
  const auto [after_micro, no_micro] = std::from_chars(after_stage + 1, end, action.micro);
  if (no_micro != std::errc{} || after_micro != end) return std::nullopt;
  return action;
}

/// Collectives may be done by a plan that has nothing to do on some rank.
bool must_leave_kernel(const Op& op) {
  return kind_of(op) == OpKind::compute || std::holds_alternative<SendRecv>(op);
}

PipelineSplit mean_of(std::span<const PipelineSplit> ranks) {
  PipelineSplit mean;
  for (double PipelineSplit::*number : split_numbers)
    for (const PipelineSplit& rank : ranks)
      mean.*number += rank.*number / static_cast<double>(ranks.size());
  return mean;
}

PipelineSplit median_of(std::span<const PipelineSplit> iterations) {
  PipelineSplit middle;
  for (double PipelineSplit::*number : split_numbers) {
    std::vector<double> values;
    for (const PipelineSplit& iteration : iterations) values.push_back(iteration.*number);
    middle.*number = median(values);
  }
  return middle;
}

Bubble bubble_of(std::span<const PipelineSplit> means) {
  std::vector<double> of_ideal, of_total;
  for (const PipelineSplit& mean : means) {
    of_ideal.push_back(mean.bubble_us / mean.compute_us());
    of_total.push_back(mean.bubble_us / mean.window_us);
  }
  return {median_of(means), median(of_ideal), median(of_total)};
}

}  // namespace

std::optional<Action> action_of(const std::string& path) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (const auto action = parse_compute_action(std::string_view{path}.substr(begin, end - begin)))
      return action;
    begin = end + 1;
  }
  return std::nullopt;
}

std::size_t pipeline_place(const Parallel& parallel, std::size_t rank) {
  const int member = static_cast<int>(rank) % parallel.num_ranks();
  return static_cast<std::size_t>(parallel.at(0, member).pp.position);
}

std::vector<InFlight> in_flight(const PipelineTimes& times, const LayerConfig& layer) {
  std::vector<InFlight> places;
  if (!layer.is_pipeline() || layer.inference) return places;
  for (const pipeline::RankUse& use : pipeline::replay(*layer.pipeline.schedule).ranks)
    places.push_back({.claimed = use.peak_in_flight});
  for (std::size_t rank = 0; rank < times.peak_in_flight.size(); ++rank) {
    int& most = places[pipeline_place(layer.parallel, rank)].measured;
    most = std::max(most, times.peak_in_flight[rank]);
  }
  return places;
}

std::string in_flight_problem(std::span<const InFlight> places) {
  for (std::size_t place = 0; place < places.size(); ++place)
    if (const auto [claimed, measured] = places[place]; measured > claimed)
      return message("rank ", place, " of the pipeline held ", measured,
                     " micro-batches at once, its schedule says ", claimed);
  return {};
}

PipelineAnalysis::PipelineAnalysis(std::vector<std::vector<OpRecord>> lists, int num_stages)
    : lists_{std::move(lists)}, num_stages_{static_cast<std::size_t>(num_stages)} {
  for (auto& list : lists_) {
    auto& actions = actions_.emplace_back();
    for (std::uint32_t i = 0; i < list.size(); ++i) {
      list[i].seq = i;
      actions.push_back(list[i].path == nullptr ? std::nullopt : action_of(*list[i].path));
    }
  }
  match_messages();
}

std::vector<RankIteration> PipelineAnalysis::replay(std::span<const RankIteration> ranks) const {
  std::vector<std::vector<KernelRecord>> kernels;
  for (const RankIteration& rank : ranks) kernels.push_back(rank.records);
  const OpCost measured = measured_cost(lists_, kernels);
  const auto messages = message_times_ns(ranks);
  const Replay run = shardmark::replay(lists_, [&](int rank, const OpRecord& record) {
    const std::int64_t message_ns = messages[static_cast<std::size_t>(rank)][record.seq];
    return message_ns >= 0 ? message_ns : measured(rank, record);
  });
  std::vector<RankIteration> replayed;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    replayed.push_back({.begin_ns = 0,
                        .end_ns = run.window_ns,
                        .idle_ns = run.times[rank].idle_ns,
                        .records = kernel_records(lists_[rank], run.ops[rank])});
  return replayed;
}

std::vector<StageTime> PipelineAnalysis::stage_times(std::span<const RankIteration> ranks) const {
  std::vector<StageTime> stages(num_stages_);
  std::vector<std::set<std::pair<std::size_t, int>>> runs(num_stages_);  // rank, micro-batch
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const KernelRecord& record : ranks[rank].records) {
      const auto& action = actions_[rank].at(record.op_seq);
      if (!action || record.kind != OpKind::compute) continue;
      StageTime& stage = stages.at(static_cast<std::size_t>(action->stage));
      (action->act == Act::F ? stage.forward_us : stage.backward_us) +=
          to_us(record.end_ns - record.start_ns);
      runs[static_cast<std::size_t>(action->stage)].emplace(rank, action->micro);
    }
  for (std::size_t i = 0; i < num_stages_; ++i) {
    const double count = std::max(1.0, static_cast<double>(runs[i].size()));
    stages[i].forward_us /= count;
    stages[i].backward_us /= count;
  }
  return stages;
}

void PipelineAnalysis::check(std::span<const RankIteration> ranks,
                             std::span<const PipelineSplit> splits) {
  constexpr double residual_limit = 0.001;
  for (std::size_t rank = 0; rank < ranks.size() && problem_.empty(); ++rank) {
    const std::string where = message("iteration ", samples_.size(), ", rank ", rank, ": ");
    const PipelineSplit& split = splits[rank];
    if (std::abs(split.residual_us) > residual_limit * split.window_us)
      problem_ = message(where, "the parts of the pipeline's window leave ", split.residual_us,
                         " of ", split.window_us, " us unexplained (limit 0.1 %)");
    std::vector<bool> has_kernel(lists_[rank].size());
    for (const KernelRecord& record : ranks[rank].records) has_kernel[record.op_seq] = true;
    for (std::size_t i = 0; i < has_kernel.size() && problem_.empty(); ++i)
      if (!has_kernel[i] && must_leave_kernel(lists_[rank][i].op))
        problem_ = message(where, describe(lists_[rank][i]), " left no kernel");
  }
}

void PipelineAnalysis::add(std::span<const RankIteration> ranks) {
  Sample sample{split(ranks), split(replay(ranks)), stage_times(ranks), most_in_flight(ranks)};
  check(ranks, sample.ranks);
  samples_.push_back(std::move(sample));
}

void PipelineAnalysis::add_predicted(std::span<const RankIteration> ranks) {
  const std::vector<PipelineSplit> splits = split(ranks);
  check(ranks, splits);
  samples_.push_back({splits, splits, stage_times(ranks), most_in_flight(ranks)});
}

PipelineTimes PipelineAnalysis::result() const {
  PipelineTimes times;
  times.iterations = static_cast<int>(samples_.size());
  times.problem = problem_;
  if (samples_.empty()) return times;
  std::vector<PipelineSplit> measured, replayed;
  std::vector<double> errors_pct;
  for (const Sample& sample : samples_) {
    measured.push_back(mean_of(sample.ranks));
    replayed.push_back(mean_of(sample.replayed));
    errors_pct.push_back(100 * (replayed.back().window_us / measured.back().window_us - 1));
  }
  times.measured = bubble_of(measured);
  times.replayed = bubble_of(replayed);
  times.replay_error_pct = median(errors_pct);
  const auto over_samples = [&](const auto& number) {
    std::vector<double> values;
    for (const Sample& sample : samples_) values.push_back(number(sample));
    return median(values);
  };
  for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
    std::vector<PipelineSplit> splits;
    for (const Sample& sample : samples_) splits.push_back(sample.ranks[rank]);
    times.ranks.push_back(median_of(splits));
    int peak = 0;
    for (const Sample& sample : samples_) peak = std::max(peak, sample.in_flight[rank]);
    times.peak_in_flight.push_back(peak);
  }
  for (std::size_t i = 0; i < num_stages_; ++i)
    times.stages.push_back(
        {over_samples([i](const Sample& sample) { return sample.stages[i].forward_us; }),
         over_samples([i](const Sample& sample) { return sample.stages[i].backward_us; })});
  return times;
}

}  // namespace shardmark::bench
