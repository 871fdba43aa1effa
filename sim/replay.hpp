#pragma once

#include "core/record.hpp"
#include "sim/fold.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace shardmark {

/// When an op ran. A communication waits from `start_ns`, when its lane reached it, to `ready_ns`,
/// when all who take part had reached it; for other ops the two are equal. Signal and Await take no
/// time.
struct TimedOp {
  std::uint32_t seq{0};  ///< OpRecord::seq
  std::int64_t start_ns{0}, ready_ns{0}, end_ns{0};
};

/// Where one rank's window went, by the rules of measured rows: from unions of intervals,
/// communication from when its lane reached it. window = comp + exposed_comm + idle.
struct RankTime {
  std::int64_t comp_ns{0}, comm_ns{0}, overlapped_ns{0}, exposed_comm_ns{0};
  std::int64_t idle_ns{0};      ///< neither; counted as gaps, not as what is left
  std::int64_t wait_ns{0};      ///< sum over communications, for the others to come
  std::int64_t transfer_ns{0};  ///< sum over communications, once all had come
  std::int64_t drain_ns{0};     ///< from its last op to the window's end; a part of idle

  [[nodiscard]] std::int64_t residual_ns(std::int64_t window_ns) const {
    return window_ns - comp_ns - exposed_comm_ns - idle_ns;
  }
};

/// A run of op lists on a machine that is not there.
struct Replay {
  std::int64_t window_ns{0};              ///< from 0 to the last end on any rank, equal for all
  std::vector<std::vector<TimedOp>> ops;  ///< by class, in the order of its list
  std::vector<RankTime> times;            ///< by class
};

/// Nanoseconds that `record` of `rank` takes once it can run: a compute op; a collective after all
/// its members have come (of those, the slowest counts); of a SendRecv the message it sends.
using OpCost = std::function<std::int64_t(int rank, const OpRecord& record)>;

/// Which lane's queue each lane uses, by index. Lanes that share one take turns in submission
/// order.
using LaneMap = std::array<Lane, num_lanes>;
[[nodiscard]] LaneMap own_lanes();
/// Collectives and the ring of the cp axis take turns with compute, as where one core does both;
/// the pipeline's messages keep their lanes, since in submission order they could deadlock.
[[nodiscard]] LaneMap lanes_of_one_core();

/// Runs the lanes of all ranks: a lane is in order and does one op at a time; Await holds it until
/// the Signal was reached; a collective runs when the lanes of all members have reached it; a
/// message when sender and receiver have (as with rendezvous), and its SendRecv ends with the last
/// of its messages. Linear in the number of ops.
///
/// `lists[c]` holds the records, in submission order, of the rank that stands for class c.
/// Throws Error with a line per lane that cannot finish: who is stuck, where, and waiting for what.
[[nodiscard]] Replay replay(std::span<const std::vector<OpRecord>> lists, const Folding& folding,
                            const OpCost& cost_ns, const LaneMap& lanes = own_lanes());
/// Every rank on its own: `lists[r]` is rank r's.
[[nodiscard]] Replay replay(std::span<const std::vector<OpRecord>> lists, const OpCost& cost_ns);

/// The intervals of a replayed list in the form in which measured ones come, for the same traces
/// and tables; named after their ops.
[[nodiscard]] std::vector<KernelRecord> kernel_records(std::span<const OpRecord> list,
                                                       std::span<const TimedOp> timed);

}  // namespace shardmark
