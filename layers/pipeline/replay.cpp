#include "layers/pipeline/replay.hpp"

#include "core/error.hpp"
#include "layers/pipeline/graph_internal.hpp"

#include <algorithm>

namespace shardmark::pipeline {
namespace {

double duration_of_action(const Action& action, const Durations& durations) {
  const StageTimes& times = durations.of(action.stage);
  switch (action.act) {
    case Act::F:
      return times.forward;
    case Act::B:
      return times.backward_input + times.backward_weight;
    case Act::I:
      return times.backward_input;
    case Act::W:
      return times.backward_weight;
    default:
      return 0;
  }
}

}  // namespace

double duration_of(const Step& step, const Durations& durations) {
  const double alone = duration_of_action(step.action, durations);
  if (!step.with) return alone;
  const double together = durations.of(step.action.stage).overlapped;
  if (is_compute(step.action.act) && together >= 0) return together;
  return alone + duration_of_action(*step.with, durations);
}

double Timeline::mean_bubble() const {
  double sum = 0;
  for (const RankUse& use : ranks) sum += window - use.busy;
  return sum / static_cast<double>(ranks.size());
}

double Timeline::bubble_of_ideal() const { return mean_bubble() / (window - mean_bubble()); }

double Timeline::bubble_of_total() const { return mean_bubble() / window; }

int Timeline::peak_in_flight() const {
  return std::ranges::max_element(ranks, {}, &RankUse::peak_in_flight)->peak_in_flight;
}

Timeline replay(const Schedule& schedule, const Durations& durations) {
  SHARDMARK_CHECK(durations.stages.size() == 1 ||
                      durations.stages.size() == static_cast<std::size_t>(schedule.num_stages),
                  durations.stages.size(), " stages have durations, the schedule has ",
                  schedule.num_stages);
  Graph graph{schedule, durations};
  SHARDMARK_CHECK(graph.run(), "schedule ", schedule.name, " deadlocks");
  Timeline timeline;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& steps = schedule.ranks[static_cast<std::size_t>(rank)];
    auto& spans = timeline.steps.emplace_back();
    spans.reserve(steps.size());
    RankUse use;
    int in_flight = 0;
    bool started = false;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      const Step& step = steps[static_cast<std::size_t>(i)];
      const Span span = graph.span({rank, i});
      spans.push_back(span);
      if (!is_compute(step.action.act)) continue;
      if (!started) use.start = span.start;
      started = true;
      use.end = span.end;
      use.busy += duration_of(step, durations);
      for_each_action(step, [&](const Action& action) {
        if (action.act == Act::F) use.peak_in_flight = std::max(use.peak_in_flight, ++in_flight);
        if (action.act == Act::B || action.act == Act::W) --in_flight;
      });
    }
    timeline.window = std::max(timeline.window, use.end);
    timeline.ranks.push_back(use);
  }
  return timeline;
}

}  // namespace shardmark::pipeline
