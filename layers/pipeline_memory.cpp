#include "layers/pipeline_memory.hpp"

#include "core/record/backend.hpp"
#include "core/record/memory.hpp"
#include "layers/stage.hpp"

#include <algorithm>
#include <map>

namespace shardmark {
namespace {

/// Activations of one micro-batch in a stage, without what is recomputed, which a rank holds once.
std::int64_t state_bytes(const LayerConfig& config, int stage) {
  RecordBackend backend;
  OpList list;
  Rank rank{0, Mesh{{}}, backend};
  TokenScratch scratch = make_token_scratch(rank, config.parallel,
                                            {config.tokens(), config.shape.hidden}, config.dtype);
  Recomputed recomputed;
  const Stage layers{rank, config, stage_range(config, stage), scratch, &recomputed};
  rank.set_sink(&list);
  const Stage::State state = layers.make_state(rank);
  rank.set_sink(nullptr);
  return memory_timeline(list.memory).end[Category::activation];
}

}  // namespace

std::int64_t claimed_activation_bytes(const LayerConfig& config) {
  if (!config.is_pipeline() || config.inference) return 0;
  using pipeline::Act;
  const pipeline::Schedule& schedule = *config.pipeline.schedule;
  const int place = config.parallel.pp.position;
  std::map<int, std::int64_t> bytes;
  for (const int stage : schedule.stages_of(place)) bytes[stage] = state_bytes(config, stage);
  std::int64_t now = 0, most = 0;
  for (const pipeline::Step& step : schedule.ranks[static_cast<std::size_t>(place)])
    for_each_action(step, [&](const pipeline::Action& action) {
      if (action.act == Act::F) most = std::max(most, now += bytes.at(action.stage));
      if (action.act == Act::B || action.act == Act::W) now -= bytes.at(action.stage);
    });
  return most;
}

}  // namespace shardmark
