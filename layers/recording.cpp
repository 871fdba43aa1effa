#include "layers/recording.hpp"

#include "core/cpu/kernels.hpp"
#include "core/record/backend.hpp"

#include <algorithm>
#include <array>

namespace shardmark {
namespace {

/// The mesh in which `group` is the tp group of rank `group.world_rank(position)`.
Mesh mesh_around(const Group& group) {
  const int replicas = group.first / group.size + 1;
  return Mesh{{.dp = replicas, .tp = group.size}};
}

}  // namespace

std::string_view name_of(Phase phase) {
  static constexpr std::array<std::string_view, 3> names{"fwd", "bwd", "step"};
  return names[static_cast<std::size_t>(phase)];
}

void run_phase(LayerProgram& program, Phase phase) {
  if (phase != Phase::backward) program.forward();
  if (phase != Phase::forward) program.backward();
}

Recording record_program(const LayerConfig& config, Phase phase, int num_threads) {
  Recording recording;
  OpList list;
  recording.backend = std::make_unique<RecordBackend>();
  const Group& tp = config.parallel.tp;
  recording.rank = std::make_unique<Rank>(tp.world_rank(tp.position), mesh_around(tp),
                                          *recording.backend, &list);
  Rank& rank = *recording.rank;
  {
    const auto program = make_program(rank, config);
    if (phase == Phase::backward) {  // needs a forward before, which is not part of it
      rank.set_sink(nullptr);
      program->forward();
      rank.set_sink(&list);
    }
    const auto scope = rank.scope(name_of(phase));
    run_phase(*program, phase);
  }
  rank.set_sink(nullptr);
  recording.ops = std::move(list.ops);
  recording.memory = std::move(list.memory);
  recording.tensor_bytes = memory_timeline(recording.memory).peak.total();
  for (const OpRecord& record : recording.ops) {
    recording.flops += flops_of(record.op);
    recording.bytes_wire += bytes_wire_of(record.op);
    if (kind_of(record.op) == OpKind::compute)
      recording.workspace_bytes =
          std::max(recording.workspace_bytes, workspace_bytes(record.op, num_threads));
  }
  return recording;
}

void connect_all(Transport& transport, const std::vector<OpRecord>& ops) {
  for (const OpRecord& record : ops)
    if (const Group* group = group_of(record.op)) transport.connect(*group, record.lane);
}

}  // namespace shardmark
