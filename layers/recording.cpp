#include "layers/recording.hpp"

#include "core/cpu/kernels.hpp"
#include "core/record/backend.hpp"
#include "core/record/channel.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace shardmark {
namespace {

/// A mesh in which the rank whose view `parallel` is has its groups.
Mesh mesh_around(const Parallel& parallel) {
  const int runs = parallel.world_rank() / parallel.num_ranks() + 1;
  return Mesh{{.dp = runs * parallel.dp.size,
               .pp = parallel.pp.size,
               .cp = parallel.context.cp.size,
               .tp = parallel.tp.size}};
}

}  // namespace

std::string_view name_of(Phase phase) {
  static constexpr std::array<std::string_view, 3> names{"fwd", "bwd", "step"};
  return names[static_cast<std::size_t>(phase)];
}

void run_phase(LayerProgram& program, Phase phase) {
  if (phase == Phase::step) program.step();
  if (phase == Phase::forward) program.forward();
  if (phase == Phase::backward) program.backward();
}

Recording record_program(const LayerConfig& config, Phase phase, int num_threads) {
  Recording recording;
  OpList list;
  recording.backend = std::make_unique<RecordBackend>();
  recording.rank = std::make_unique<Rank>(config.parallel.world_rank(),
                                          mesh_around(config.parallel), *recording.backend, &list);
  Rank& rank = *recording.rank;
  recording.program = make_program(rank, config);
  if (phase == Phase::backward) {  // needs a forward before, which is not part of it
    rank.set_sink(nullptr);
    recording.program->forward();
    rank.set_sink(&list);
  }
  {
    const auto scope = rank.scope(name_of(phase));
    run_phase(*recording.program, phase);
  }
  rank.set_sink(nullptr);
  recording.ops = std::move(list.ops);
  recording.memory = std::move(list.memory);
  recording.tensor_bytes = memory_timeline(recording.memory).peak.total();
  for (const OpRecord& record : recording.ops) {
    recording.flops += flops_of(record.op);
    recording.bytes_wire += bytes_sent_of(record.op);
    if (kind_of(record.op) == OpKind::compute)
      recording.workspace_bytes =
          std::max(recording.workspace_bytes, workspace_bytes(record.op, num_threads));
  }
  return recording;
}

void for_each_channel(const std::vector<OpRecord>& ops,
                      const std::function<void(const Group&, Lane)>& visit) {
  std::map<std::pair<ChannelKey, Lane>, const OpRecord*> channels;
  for (const OpRecord& record : ops)
    if (const Group* group = group_of(record.op))
      channels.try_emplace({channel_key(*group, record.lane), record.lane}, &record);
  for (const auto& [key, record] : channels) visit(*group_of(record->op), record->lane);
}

void connect_all(Transport& transport, const std::vector<OpRecord>& ops) {
  for_each_channel(ops, [&](const Group& group, Lane lane) { transport.connect(group, lane); });
}

}  // namespace shardmark
