#pragma once

// Small models run as pipelines, for tests on recorded op lists and on values.

#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/record/backend.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/recording.hpp"
#include "tests/pipeline/schedules.hpp"

#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

namespace shardmark::test {

using pipeline::Lowering;
using pipeline::Request;
using pipeline::Schedule;
using pipeline::ScheduleKind;

/// A pipeline on dp x pp x tp ranks.
struct PipelineCase {
  LayerConfig config;

  [[nodiscard]] int ranks() const { return config.parallel.num_ranks(); }
  [[nodiscard]] const Schedule& schedule() const { return *config.pipeline.schedule; }
  [[nodiscard]] Mesh mesh() const {
    const Parallel& parallel = config.parallel;
    return Mesh{{.dp = parallel.dp.size, .pp = parallel.pp.size, .tp = parallel.tp.size}};
  }
  [[nodiscard]] LayerConfig on(int rank) const {
    LayerConfig layer = config;
    layer.parallel = config.parallel.at(0, rank);
    return layer;
  }
};

inline std::string describe(const PipelineCase& c) {
  const PipelineConfig& pipeline = c.config.pipeline;
  std::string blocks;
  for (const std::int64_t count : pipeline.blocks) blocks += message(' ', count);
  return message(pipeline.schedule_name, " dp ", c.config.parallel.dp.size, " pp ",
                 c.config.parallel.pp.size, " tp ", c.config.parallel.tp.size, " m ",
                 pipeline.micro, c.schedule().lowering == Lowering::merged ? " merged" : " split",
                 " blocks", blocks, ' ', name_of(c.config.dtype));
}
inline std::ostream& operator<<(std::ostream& out, const PipelineCase& c) {
  return out << describe(c);
}

inline void set_blocks(PipelineCase& c, std::vector<std::int64_t> blocks) {
  c.config.shape.layers = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  c.config.pipeline.blocks = std::move(blocks);
}

/// One block per stage, in micro-batches of 2 sequences of 6 tokens.
inline PipelineCase pipeline_case(const Schedule& lowered, int tp = 1, int dp = 1) {
  PipelineCase c;
  c.config.block = BlockKind::model;
  ModelShape& shape = c.config.shape;
  shape.heads = shape.kv_heads = 4;
  shape.head_dim = 8;
  shape.hidden = 32;
  shape.ffn = 64;
  shape.vocab = 40;
  shape.seq = 6;
  shape.batch = 2;
  Parallel& parallel = c.config.parallel;
  parallel.tp.size = tp;
  parallel.pp.size = lowered.num_ranks();
  parallel.dp.size = dp;
  c.config.pipeline = {.schedule_name = lowered.name,
                       .micro = lowered.num_micro,
                       .schedule = std::make_shared<const Schedule>(lowered),
                       .blocks = {}};
  set_blocks(c, std::vector<std::int64_t>(static_cast<std::size_t>(lowered.num_stages), 1));
  return c;
}
inline PipelineCase pipeline_case(ScheduleKind kind, const Request& request,
                                  Lowering lowering = Lowering::split, int tp = 1, int dp = 1) {
  return pipeline_case(lower(generate(kind, request), lowering), tp, dp);
}

/// Every schedule under both lowerings, at all of these numbers of ranks and micro-batches that it
/// allows.
inline std::vector<PipelineCase> all_schedules(const std::vector<int>& ranks,
                                               const std::vector<int>& micro) {
  std::vector<PipelineCase> cases;
  pipeline::for_each_schedule(ranks, micro, [&](ScheduleKind, const Schedule& schedule) {
    for (const Lowering lowering : {Lowering::split, Lowering::merged})
      cases.push_back(pipeline_case(lower(schedule, lowering)));
  });
  return cases;
}

/// The ops of some steps of every rank; the paths of step i begin with "i/". Between the steps
/// somebody uses the memory of all messages on the compute lane.
class RecordedSteps {
 public:
  explicit RecordedSteps(const PipelineCase& c, int steps) {
    for (int id = 0; id < c.ranks(); ++id) {
      Recording& recording = recordings_.emplace_back();
      OpList list;
      recording.backend = std::make_unique<RecordBackend>();
      recording.rank = std::make_unique<Rank>(id, c.mesh(), *recording.backend, &list);
      recording.program = make_program(*recording.rank, c.on(id));
      for (int step = 0; step < steps; ++step) {
        const auto scope = recording.rank->scope(std::to_string(step));
        recording.program->step();
        reuse_memory(*recording.rank, list.ops);
      }
      recording.rank->set_sink(nullptr);
      ops.push_back(std::move(list.ops));
    }
  }

  std::vector<std::vector<OpRecord>> ops;

 private:
  static void reuse_memory(Rank& rank, const std::vector<OpRecord>& ops) {
    std::map<std::uint32_t, Tensor> buffers;
    for (const OpRecord& record : ops)
      if (const auto* message = std::get_if<SendRecv>(&record.op))
        for (const Tensor& tensor : {message->x, message->y})
          if (tensor) buffers[tensor.buffer] = tensor;
    for (const auto& [id, tensor] : buffers) fill(rank, tensor, 0);
  }

  std::vector<Recording> recordings_;  ///< keep what the ops point to
};

}  // namespace shardmark::test
