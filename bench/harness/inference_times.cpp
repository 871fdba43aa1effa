#include "bench/harness/inference_times.hpp"

#include "bench/harness/result.hpp"
#include "bench/harness/trace.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace shardmark::bench {
namespace {

/// The number behind "/request" in the path of an op.
std::size_t request_of(const std::string& path) {
  constexpr std::string_view name = "/request";
  const std::size_t at = path.find(name);
  SHARDMARK_CHECK(at != std::string::npos, path, " is of no request");
  return std::stoul(path.substr(at + name.size()));
}

struct Span {
  double start_us, end_us;
};
/// Of each compute op, tiles together, in the order of submission.
std::vector<Span> compute_spans(const RankTrace& trace) {
  std::map<std::uint32_t, Span> spans;
  for (const RankTrace::Interval& interval : trace.intervals) {
    if (interval.kind != OpKind::compute) continue;
    auto [place, is_new] =
        spans.try_emplace(interval.op_seq, Span{interval.start_us, interval.end_us});
    place->second.start_us = std::min(place->second.start_us, interval.start_us);
    place->second.end_us = std::max(place->second.end_us, interval.end_us);
  }
  std::vector<Span> list;
  for (const auto& [op, span] : spans) list.push_back(span);
  return list;
}

/// How long a single request was on a stage, all passes together; each has as many ops.
double time_on_stage(const RankTrace& trace, int passes) {
  const std::vector<Span> ops = compute_spans(trace);
  const std::size_t per_pass = ops.size() / static_cast<std::size_t>(passes);
  SHARDMARK_CHECK(per_pass > 0 && per_pass * static_cast<std::size_t>(passes) == ops.size(),
                  "rank ", trace.rank, ": ", ops.size(), " kernels in ", passes, " equal passes");
  double time_us = 0;
  for (std::size_t first = 0; first < ops.size(); first += per_pass)
    time_us += ops[first + per_pass - 1].end_us - ops[first].start_us;
  return time_us;
}

double hop_us(const std::vector<const RankTrace*>& stages, int passes) {
  const RankTrace& first = *stages.front();
  double end_us = 0, on_stages_us = 0;
  for (const RankTrace::Interval& interval : first.intervals)
    end_us = std::max(end_us, interval.end_us);  // the last token's arrival
  for (const RankTrace* stage : stages) on_stages_us += time_on_stage(*stage, passes);
  const double window_us = end_us - compute_spans(first).front().start_us;
  return (window_us - on_stages_us) / (passes * static_cast<double>(stages.size()));
}

/// Without overlap nothing of a stage runs beside anything else but messages.
double share_of(const RankTrace& trace, Lane lane) {
  return time_on(trace, lane) / std::max(trace.window_us, 1e-9);
}

double mean_done(const RankTrace& last, int requests) {
  std::vector<double> done_us(static_cast<std::size_t>(requests), 0);
  for (const RankTrace::Interval& interval : last.intervals) {
    if (interval.kind != OpKind::compute) continue;
    double& end_us = done_us.at(request_of(interval.path));
    end_us = std::max(end_us, interval.end_us);
  }
  double sum_us = 0;
  for (const double end_us : done_us) sum_us += end_us;
  return sum_us / requests / std::ranges::max(done_us);
}

}  // namespace

InferenceTimes inference_times(const LayerConfig& layer, const std::vector<RankTrace>& traces) {
  const InferenceConfig& run = *layer.inference;
  const Group pp = layer.parallel.at(0, 0).pp;
  std::vector<const RankTrace*> stages;
  for (int stage = 0; stage < pp.size; ++stage) {
    const auto found = std::ranges::find(traces, pp.world_rank(stage), &RankTrace::rank);
    SHARDMARK_CHECK(found != traces.end(), "no trace of stage ", stage);
    stages.push_back(&*found);
  }
  InferenceTimes times;
  times.mean_done = mean_done(*stages.back(), run.requests);
  times.on_stage = 0;
  for (const RankTrace* stage : stages) {
    times.in_collectives += share_of(*stage, Lane::tp) / pp.size;
    times.on_stage += (share_of(*stage, Lane::compute) + share_of(*stage, Lane::tp)) / pp.size;
  }
  if (run.requests == 1 && pp.size > 1) times.hop_us = hop_us(stages, run.num_passes());
  return times;
}

double ttft_us(const Result& result) {
  return result.time.p50 * (result.inference ? result.inference->mean_done : 1);
}

double time_per_token_us(const Result& result) {
  return result.time.p50 / result.config.layer.inference->tokens;
}

double tokens_per_s(const Result& result) {
  const LayerConfig& layer = result.config.layer;
  const InferenceConfig& run = *layer.inference;
  const std::int64_t of_a_request =
      layer.shape.batch *
      (run.step == InferenceStep::prefill ? layer.shape.seq : std::int64_t{run.tokens});
  return static_cast<double>(run.requests * of_a_request) / (result.time.p50 * 1e-6);
}

}  // namespace shardmark::bench
