#pragma once

#include "bench/analyze/across.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardmark::bench {

/// One rank of a pipeline in the window that all of its ranks share, first start to last end of
/// work on any of them (METRICS.md 1.4; a stage's own first to last operation hides its bubble):
///   window = compute + collective + copy + bubble,  bubble = wait + idle.
/// Of a trace of ours it is the sum over the rows (steps) with messages that the rank took part in.
/// A recording cannot tell a message's transfer from its wait, nor why a device is idle, so both
/// are in the bubble: what a schedule's formula explains is at most this.
struct StageRow {
  int rank{0};      ///< position in Recording::ranks
  int pipeline{0};  ///< from 0; ranks that exchange messages with each other
  int stage{0};     ///< from 0, in the order of the group's ranks, or along the peers
  std::int64_t num_messages{0};
  std::int64_t message_bytes{0};  ///< of those whose size the file says
  std::int64_t message_ns{0};     ///< in sends and receives, |union|
  std::int64_t window_ns{0}, compute_ns{0};
  std::int64_t collective_ns{0};  ///< not under compute
  std::int64_t copy_ns{0};        ///< not under either
  std::int64_t bubble_ns{0};
  std::int64_t wait_ns{0};   ///< in messages, under none of the above
  std::int64_t idle_ns{0};   ///< nothing at all
  std::int64_t fill_ns{0};   ///< of the bubble: before the first compute
  std::int64_t drain_ns{0};  ///< of the bubble: after the last compute
  double bubble_of_total{0};
};

struct Stages {
  std::vector<StageRow> rows;         ///< by pipeline, then stage
  std::vector<std::string> warnings;  ///< stages without files, clocks that are not aligned
};
/// Empty where no rank sends or receives for a pipeline: messages in groups of purpose "pp", or of
/// no known purpose with a peer. `clocks` of analyse_across.
[[nodiscard]] Stages analyse_stages(const Recording& recording, const RankSpans& spans,
                                    const std::map<std::string, std::string>& axis_of,
                                    const ClockAlignment& clocks);

}  // namespace shardmark::bench
