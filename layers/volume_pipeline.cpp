#include "core/error.hpp"
#include "layers/parameters_internal.hpp"
#include "layers/pipeline_program.hpp"
#include "layers/volume_internal.hpp"

#include <utility>

namespace shardmark {

VolumeCounter::Payload VolumeCounter::boundary() const {
  auto [bytes, formula] = tokens_hidden();
  if (!sp()) return {bytes, formula};
  return {bytes / config_.parallel.tp.size, formula + "/t"};
}

void VolumeCounter::pipeline() {
  const pipeline::Schedule& schedule = *config_.pipeline.schedule;
  const int me = config_.parallel.pp.position;
  const auto is_here = [&](int stage, int micro) { return schedule.rank_of(stage, micro) == me; };
  for (const int s : schedule.stages_of(me)) {
    int here = 0, up = 0, down = 0;  // micro-batches that the stage has, passes on, passes back
    for (int micro = 0; micro < schedule.num_micro; ++micro) {
      if (!is_here(s, micro)) continue;
      ++here;
      if (s + 1 < schedule.num_stages && !is_here(s + 1, micro)) ++up;
      if (s > 0 && !is_here(s - 1, micro)) ++down;
    }
    times_ = here;
    stage(stage_range(config_, s));
    weights_apart(s);
    const auto [bytes, formula] = boundary();
    times_ = up;
    if (forward_) add(message("stage ", s, " forward: result to the next stage"), bytes, formula);
    times_ = down;
    if (backward_)
      add(message("stage ", s, " backward: gradient to the stage before"), bytes, formula);
    times_ = 1;
    sum_gradients(s);
  }
  sum_tied();
}

void VolumeCounter::weights_apart(int s) {
  if (!sp() || !backward_) return;
  times_ = 0;
  const auto me = static_cast<std::size_t>(config_.parallel.pp.position);
  for (const pipeline::Step& step : config_.pipeline.schedule->ranks[me])
    pipeline::for_each_action(step, [&](const pipeline::Action& action) {
      times_ += action.act == pipeline::Act::W && action.stage == s;
    });
  const double num_gathers = 2 * as_double(config_.pipeline.blocks[static_cast<std::size_t>(s)]);
  gather(message("stage ", s, " weights apart: all-gather of output gradients again"),
         {num_gathers * tokens_hidden().bytes, message(num_gathers, "*T*h*e")});
}

void VolumeCounter::sum_gradients(int s) {
  if (!backward_) return;
  const double elements = stage_parameters(config_, stage_range(config_, s));
  const auto line = [&](const Group& group, std::string_view over) {
    const double n = group.size;
    add(message("stage ", s, " gradients: all-reduce over ", over), 2 * (n - 1) / n * elements * 4,
        message("2(n-1)/n * parameters*4, n=", n, ", parameters=", elements));
  };
  line(copies_of(config_, s), "the two ranks of DualPipe");
  line(config_.parallel.dp, "dp");
}

void VolumeCounter::sum_tied() {
  const double n = ends_of_tie(config_).size;
  if (!config_.tied_embeddings || !backward_ || n == 1) return;
  const double table = as_double(shape().hidden) * as_double(shape().vocab);
  add("tied embeddings: all-reduce of their gradient over the first and last stage",
      2 * (n - 1) / n * table / config_.parallel.tp.size * 4, "2(n-1)/n * h*V/t*4, n=2");
}

void VolumeCounter::inference() {
  const int stage_number = config_.parallel.pp.position, pp = config_.parallel.pp.size;
  times_ = config_.inference->num_passes();
  times_of_ = "passes";
  StageRange range = stage_range(config_, stage_number);
  const bool has_head = std::exchange(range.has_head, false);
  stage(range);
  const double per_sequence = as_double(shape().batch) * 4;
  const auto [bytes, formula] = tokens_hidden();
  if (has_head) reduce("logits forward: all-reduce of the maxima", {per_sequence, "b*4"});
  if (has_head && pp > 1) add("token to the first stage", per_sequence, "b*4");
  if (!has_head)
    add(message("stage ", stage_number, " forward: result to the next stage"), bytes, formula);
}

}  // namespace shardmark
