// How a ThreadTransport moves the bytes of its member once all have arrived.

#include "core/cpu/reduce.hpp"
#include "core/cpu/thread_meeting.hpp"

namespace shardmark {
namespace {

void copy(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

/// Every member compares all calls with the first member's, so all of them throw the same error.
void ThreadTransport::check_calls(const Connection& connection) const {
  ThreadWorld::Meeting& meeting = *connection.meeting;
  const ThreadWorld::Call& first = meeting.slot(0).call;
  for (int member = 1; member < connection.group.size; ++member) {
    const ThreadWorld::Call& other = meeting.slot(member).call;
    if (other.matches(first)) continue;
    meeting.broken.store(true, std::memory_order_release);
    throw Error{message("rank ", connection.group.world_rank(member), " called ", other.to_string(),
                        " where rank ", connection.group.world_rank(0), " called ",
                        first.to_string(), " on ", connection.group.to_string(),
                        other.same_but_counts(first) ? "; their counts differ" : "")};
  }
}

void ThreadTransport::move_bytes(const Connection& connection) {
  using Move = ThreadWorld::Call::Move;
  check_calls(connection);
  ThreadWorld::Meeting& meeting = *connection.meeting;
  const int size = connection.group.size;
  const int me = connection.group.position;
  const ThreadWorld::Call& mine = meeting.slot(me).call;
  const std::int64_t unit = size_of(mine.dtype);
  const std::int64_t bytes = mine.numel * unit;
  const auto source_of = [&](int member) { return meeting.slot(member).call.source; };
  switch (mine.move) {
    case Move::nothing:
      return;
    case Move::gather_to_all:
      for (int peer = 0; peer < size; ++peer)
        copy(source_of(peer), mine.target + peer * bytes, bytes);
      return;
    case Move::exchange:
      if (!mine.counts.empty()) return exchange_by_counts(connection);
      for (int peer = 0; peer < size; ++peer)
        copy(source_of(peer) + me * bytes, mine.target + peer * bytes, bytes);
      return;
    case Move::root_to_all:
      return copy(source_of(mine.root), mine.target, bytes);
    case Move::gather_to_root:
      return copy(mine.source, meeting.slot(mine.root).call.target + me * bytes, bytes);
    case Move::scatter_from_root:
      return copy(source_of(mine.root) + me * bytes, mine.target, bytes);
    case Move::reduce_to_all:
    case Move::reduce_to_root:
    case Move::reduce_to_own:
      return reduce_part(connection);
  }
}

void ThreadTransport::exchange_by_counts(const Connection& connection) {
  ThreadWorld::Meeting& meeting = *connection.meeting;
  const ThreadWorld::Call& mine = meeting.slot(connection.group.position).call;
  const auto me = static_cast<std::size_t>(connection.group.position);
  const auto size = static_cast<std::size_t>(connection.group.size);
  const std::int64_t unit = size_of(mine.dtype);
  std::byte* to = mine.target;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const auto theirs = mine.counts.subspan(peer * size, size);
    std::int64_t before = 0;
    for (std::size_t other = 0; other < me; ++other) before += theirs[other];
    copy(meeting.slots[peer].call.source + before * unit, to, theirs[me] * unit);
    to += theirs[me] * unit;
  }
}

/// This member's part of a reduction: its own block, or a share of whole cache lines, written to
/// the root or to all members.
void ThreadTransport::reduce_part(const Connection& connection) {
  using Move = ThreadWorld::Call::Move;
  ThreadWorld::Meeting& meeting = *connection.meeting;
  const ThreadWorld::Call& mine = meeting.slot(connection.group.position).call;
  const bool scatter = mine.move == Move::reduce_to_own;
  if (connection.group.size == 1)
    return copy(mine.source, mine.target, mine.numel * size_of(mine.dtype));
  const std::int64_t line = 64 / size_of(mine.dtype);
  const std::int64_t lines = (mine.numel + line - 1) / line;
  const std::int64_t share =
      scatter ? mine.numel : (lines + connection.group.size - 1) / connection.group.size * line;
  const std::int64_t first = share * connection.group.position;
  const std::int64_t count = scatter ? share : std::min(share, mine.numel - first);
  if (count <= 0) return;
  const std::int64_t offset = first * size_of(mine.dtype);
  sources_.clear();
  targets_.clear();
  for (const auto& slot : meeting.slots) {
    sources_.push_back(slot.call.source + offset);
    if (mine.move == Move::reduce_to_all) targets_.push_back(slot.call.target + offset);
  }
  if (mine.move == Move::reduce_to_root)
    targets_.push_back(meeting.slot(mine.root).call.target + offset);
  if (scatter) targets_.push_back(mine.target);
  reduce(mine.dtype, mine.reduction, sources_, targets_, count);
}

bool ThreadTransport::receive(Flight& flight) {
  using State = ThreadWorld::Mailbox::State;
  if (flight.inbox == nullptr) return true;
  ThreadWorld::Mailbox& inbox = *flight.inbox;
  if (inbox.state.load(std::memory_order_acquire) != State::posted) return false;
  check_message(flight);
  State expected = State::posted;
  if (!inbox.state.compare_exchange_strong(expected, State::claimed, std::memory_order_acq_rel))
    return false;
  copy(inbox.source, flight.message.y.data, flight.message.y.bytes());
  inbox.state.store(State::empty, std::memory_order_release);
  flight.inbox = nullptr;
  return true;
}

void ThreadTransport::check_message(const Flight& flight) const {
  const ThreadWorld::Mailbox& inbox = *flight.inbox;
  const Tensor& y = flight.message.y;
  const Group& group = flight.connection->group;
  SHARDMARK_CHECK(inbox.numel == y.numel() && inbox.dtype == y.dtype, "rank ", rank(), " receives ",
                  y.numel(), " x ", name_of(y.dtype), " where rank ",
                  group.world_rank(flight.message.from), " sends ", inbox.numel, " x ",
                  name_of(inbox.dtype), " on ", group.to_string());
}

/// A peer that waits in a collective which this member has not come to will never take or send a
/// message: the lane of this member is held up by it.
void ThreadTransport::check_peer(const Flight& flight, bool sending) const {
  using State = ThreadWorld::Mailbox::State;
  const int peer = sending ? flight.message.to : flight.message.from;
  const ThreadWorld::Meeting::Slot& slot = flight.connection->meeting->slot(peer);
  if (slot.num_calls.load(std::memory_order_acquire) <= flight.connection->num_calls) return;
  // It may have done its part of the message in the meantime and gone on.
  const ThreadWorld::Mailbox& mailbox = sending ? *flight.outbox : *flight.inbox;
  const State open = sending ? State::posted : State::empty;
  if (mailbox.state.load(std::memory_order_acquire) != open) return;
  const Group& group = flight.connection->group;
  throw Error{message("rank ", group.world_rank(peer), " called ", slot.call.to_string(),
                      " where rank ", rank(), " called send_recv with it on ", group.to_string())};
}

}  // namespace shardmark
