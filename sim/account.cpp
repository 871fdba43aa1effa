#include "sim/account.hpp"

#include <algorithm>

namespace shardmark {

RankTime account(std::span<const OpRecord> list, std::span<const TimedOp> timed,
                 std::int64_t window_ns) {
  struct Change {
    std::int64_t at_ns;
    int comp, comm;  ///< how many more of each run from here on
  };
  std::vector<Change> changes;
  RankTime time;
  std::int64_t last_end_ns = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OpKind kind = kind_of(list[i].op);
    const TimedOp& op = timed[i];
    if (kind == OpKind::ordering) continue;
    const int comm = kind == OpKind::communication ? 1 : 0;
    changes.push_back({op.start_ns, 1 - comm, comm});
    changes.push_back({op.end_ns, comm - 1, -comm});
    last_end_ns = std::max(last_end_ns, op.end_ns);
    if (comm == 0) continue;
    time.wait_ns += op.ready_ns - op.start_ns;
    time.transfer_ns += op.end_ns - op.ready_ns;
  }
  std::ranges::sort(changes, {}, &Change::at_ns);
  changes.push_back({window_ns, 0, 0});
  std::int64_t now_ns = 0;
  int comp = 0, comm = 0;
  for (const Change& change : changes) {
    const std::int64_t passed_ns = change.at_ns - now_ns;
    if (comp > 0) time.comp_ns += passed_ns;
    if (comm > 0) time.comm_ns += passed_ns;
    if (comp > 0 && comm > 0) time.overlapped_ns += passed_ns;
    if (comp == 0 && comm == 0) time.idle_ns += passed_ns;
    now_ns = change.at_ns;
    comp += change.comp;
    comm += change.comm;
  }
  time.exposed_comm_ns = time.comm_ns - time.overlapped_ns;
  time.drain_ns = window_ns - last_end_ns;
  return time;
}

}  // namespace shardmark
