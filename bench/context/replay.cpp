#include "bench/context/replay.hpp"

#include "sim/replay.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark::bench::context {

Prediction replay(std::span<const std::vector<OpRecord>> ranks, const MachineRates& rates) {
  const Replay run = shardmark::replay(ranks, [&rates](int, const OpRecord& record) {
    return std::llround(1e3 * rates.time_us(record.op));
  });
  const auto to_us = [](std::int64_t time_ns) { return static_cast<double>(time_ns) / 1e3; };
  Prediction prediction{.time_us = to_us(run.window_ns)};
  for (const RankTime& rank : run.times) {
    prediction.compute_us = std::max(prediction.compute_us, to_us(rank.comp_ns));
    prediction.exchange_us = std::max(prediction.exchange_us, to_us(rank.transfer_ns));
  }
  return prediction;
}

Prediction predict(const Case& config, const MachineRates& rates) {
  std::vector<Recording> recordings;
  std::vector<std::vector<OpRecord>> ops;
  LayerConfig layer = config.layer;
  for (int rank = 0; rank < layer.parallel.num_ranks(); ++rank) {
    layer.parallel = config.layer.parallel.at(0, rank);
    recordings.push_back(record_program(layer, config.phase, 1));
    ops.push_back(recordings.back().ops);
  }
  return replay(ops, rates);
}

}  // namespace shardmark::bench::context
