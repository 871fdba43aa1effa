// The columns of results.csv that say where a pipeline's window went.

#include "bench/harness/column_list.hpp"

namespace shardmark::bench {
namespace {

using enum Column::Holds;
using Of = Column::Of;
using R = const Row&;

/// What `value` says of a row with a pipeline; empty without one.
template <class Value>
std::string of_pipeline(R r, const Value& value) {
  return r.result.pipeline ? text(value(*r.result.pipeline)) : std::string{};
}
template <double PipelineSplit::*number>
std::string mean(R r) {
  return of_pipeline(r, [](const PipelineTimes& times) { return times.measured.mean.*number; });
}

/// One value per stage or rank, joined by '+'.
template <class Items, class Value>
std::string joined(const Items& items, const Value& value) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += '+';
    all += text(value(item));
  }
  return all;
}

/// Of each place in the pipeline.
std::string of_places(R r, int InFlight::*number) {
  if (!r.result.pipeline) return {};
  return joined(in_flight(*r.result.pipeline, r.result.config.layer),
                [number](const InFlight& place) { return place.*number; });
}
std::string of_ranks(R r, double RankWork::*number) {
  return joined(r.result.work, [number](const RankWork& work) { return work.*number; });
}

std::vector<Column> bubble_columns() {
  return {
      {"bubble_us", "us",
       "common window (first rank's start to last closing barrier) - compute - own exposed "
       "transfer - exposed collectives; like all columns of bubble_ and pp_ the mean over ranks, "
       "then the median over profiled iterations",
       measured, mean<&PipelineSplit::bubble_us>, Of::pp},
      {"bubble_of_ideal", "", "bubble over compute", measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) { return times.measured.of_ideal; });
       },
       Of::pp},
      {"bubble_of_total", "", "bubble over window", measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) { return times.measured.of_total; });
       },
       Of::pp},
      {"bubble_theory_of_ideal", "",
       "bubble_of_ideal of the same op lists replayed with each iteration's own op times (a "
       "message's: from when both ends had come to when the first knew it over), then the median",
       measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) { return times.replayed.of_ideal; });
       },
       Of::pp},
      {"bubble_theory_of_total", "", "bubble_of_total of that replay", measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) { return times.replayed.of_total; });
       },
       Of::pp},
      {"bubble_iterations", "", "profiled iterations behind these columns", sampled,
       [](R r) { return of_pipeline(r, [](const auto& times) { return times.iterations; }); },
       Of::pp},
      {"step_replayed_us", "us", "window of the replay", sampled,
       [](R r) {
         return of_pipeline(r, [](const auto& times) { return times.replayed.mean.window_us; });
       },
       Of::pp},
      {"step_replayed_error_pct", "%", "it over the same iteration's window, minus 1; the median",
       sampled,
       [](R r) { return of_pipeline(r, [](const auto& times) { return times.replay_error_pct; }); },
       Of::pp},
  };
}

/// What the window is made of.
std::vector<Column> split_columns() {
  return {
      {"pp_window_us", "us", "the common window", measured, mean<&PipelineSplit::window_us>,
       Of::pp},
      {"pp_forward_us", "us", "compute kernels of F", measured, mean<&PipelineSplit::forward_us>,
       Of::pp},
      {"pp_backward_us", "us", "compute kernels of whole B", measured,
       mean<&PipelineSplit::backward_us>, Of::pp},
      {"pp_input_us", "us", "compute kernels of I, the input gradient's part of B", measured,
       mean<&PipelineSplit::input_us>, Of::pp},
      {"pp_weight_us", "us", "compute kernels of W, the weight gradient's part of B", measured,
       mean<&PipelineSplit::weight_us>, Of::pp},
      {"pp_other_us", "us", "compute kernels of no action, such as zeroing gradients", measured,
       mean<&PipelineSplit::other_us>, Of::pp},
      {"pp_collective_us", "us", "exposed communication that is not the pipeline's (tp, cp, dp)",
       measured, mean<&PipelineSplit::collective_us>, Of::pp},
      {"pp_transfer_us", "us",
       "a rank's messages, each from when both ends had come to its own end, hidden or not",
       measured, mean<&PipelineSplit::transfer_us>, Of::pp},
      {"pp_exposed_transfer_us", "us", "of that what hides behind no compute and no collective",
       measured, mean<&PipelineSplit::exposed_transfer_us>, Of::pp},
      {"pp_wait_us", "us",
       "bubble: nothing runs, a receive is open whose sender has not come (across hosts with "
       "clocks as equal as the opening barrier makes them)",
       measured, mean<&PipelineSplit::wait_us>, Of::pp},
      {"pp_blocked_us", "us", "bubble: the same in a send whose receiver has not come", measured,
       mean<&PipelineSplit::blocked_us>, Of::pp},
      {"pp_start_us", "us", "bubble: from the window's start to the rank's first op", measured,
       mean<&PipelineSplit::start_us>, Of::pp},
      {"pp_drain_us", "us", "bubble: from the rank's last op to the window's end", measured,
       mean<&PipelineSplit::drain_us>, Of::pp},
      {"pp_unexplained_us", "us", "bubble - pp_wait - pp_blocked - pp_start - pp_drain", measured,
       mean<&PipelineSplit::unexplained_us>, Of::pp},
      {"pp_residual_us", "us",
       "bubble - pp_wait - pp_blocked - idle by the executor's own clock - looking for messages "
       "between kernels; above 0.1 % of the window in any iteration the row fails",
       measured, mean<&PipelineSplit::residual_us>, Of::pp},
  };
}

/// Stage by stage and rank by rank.
std::vector<Column> detail_columns() {
  return {
      {"stage_forward_us", "us",
       "F of each stage for one micro-batch, mean over the ranks that hold it, joined by '+'",
       measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) {
           return joined(times.stages, [](const StageTime& stage) { return stage.forward_us; });
         });
       },
       Of::pp},
      {"stage_backward_us", "us", "the same of the backward: B, or I and W", measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) {
           return joined(times.stages, [](const StageTime& stage) { return stage.backward_us; });
         });
       },
       Of::pp},
      {"rank_bubble_of_total", "", "of each rank, joined by '+'", measured,
       [](R r) {
         return of_pipeline(r, [](const auto& times) {
           return joined(times.ranks,
                         [](const PipelineSplit& rank) { return rank.bubble_us / rank.window_us; });
         });
       },
       Of::pp},
      {"peak_inflight", "",
       "by the schedule: activations (of a stage and micro-batch) that each rank of the pipeline "
       "holds at most, from a forward to its W or B, joined by '+'",
       measured, [](R r) { return of_places(r, &InFlight::claimed); }, Of::pp},
      {"peak_inflight_measured", "",
       "the same in the profiled iterations: from the start of a forward's first kernel to the end "
       "of the last one of its W or B; above peak_inflight the row fails",
       measured, [](R r) { return of_places(r, &InFlight::measured); }, Of::pp},
      {"rank_activation_bytes", "bytes",
       "activations of each rank as allocated, joined by '+': of micro-batches in flight and of "
       "those that are still being sent, tensors between stages, ids, targets and losses of all",
       measured, [](R r) { return of_ranks(r, &RankWork::activation_bytes); }, Of::pp},
      {"rank_activation_claim_bytes", "bytes",
       "by the schedule: activations of a micro-batch in a stage, summed over those that each rank "
       "holds at most, joined by '+'; empty of inference",
       measured,
       [](R r) {
         if (r.result.config.layer.inference) return std::string{};
         return of_ranks(r, &RankWork::activation_claim_bytes);
       },
       Of::pp},
  };
}

}  // namespace

std::vector<Column> pipeline_columns() {
  std::vector<Column> all = bubble_columns();
  for (const auto& part : {split_columns(), detail_columns()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace shardmark::bench
