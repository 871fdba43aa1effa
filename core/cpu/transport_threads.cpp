#include "core/cpu/transport_threads.hpp"

#include "core/cpu/reduce.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace shardmark {

/// What a member asks for; equal on all members of a meeting.
struct ThreadWorld::Call {
  enum class Move : std::uint8_t { gather, reduce_to_all, reduce_to_own };
  std::string_view what;
  Move move{Move::gather};
  DType dtype{DType::f32};
  Reduction reduction{Reduction::sum};
  std::int64_t numel{0};  ///< elements of the smaller tensor: one member's contribution or share
  const std::byte* source{nullptr};
  std::byte* target{nullptr};

  [[nodiscard]] bool matches(const Call& other) const {
    return what == other.what && dtype == other.dtype && reduction == other.reduction &&
           numel == other.numel;
  }
  // One overload per collective; a missing one does not compile.
  static Call of(const AllReduce& o) {
    return {{}, Move::reduce_to_all, o.x.dtype, o.reduction, o.x.numel(), o.x.data, o.x.data};
  }
  static Call of(const AllGather& o) {
    return {{}, Move::gather, o.x.dtype, Reduction::sum, o.x.numel(), o.x.data, o.y.data};
  }
  static Call of(const ReduceScatter& o) {
    return {{}, Move::reduce_to_own, o.x.dtype, Reduction::sum, o.y.numel(), o.x.data, o.y.data};
  }
  static Call of(const Local auto&) { return {}; }

  [[nodiscard]] std::string to_string() const {
    return message(what, reduction == Reduction::max ? " (max) of " : " of ", numel, " x ",
                   name_of(dtype));
  }
};

/// Where the members of a group meet on one lane. Both counters only grow: call number c is
/// complete once `finished` has reached c * size, and a member posts call c + 1 only after that, so
/// nobody overwrites a slot that somebody still reads.
struct ThreadWorld::Meeting {
  struct alignas(64) Slot {
    Call call;
  };
  Meeting(const Group& members, Lane its_lane)
      : group{members}, lane{its_lane}, slots(static_cast<std::size_t>(members.size)) {}

  Group group;
  Lane lane;
  std::vector<Slot> slots;
  alignas(64) std::atomic<std::uint64_t> arrived{0};
  alignas(64) std::atomic<std::uint64_t> finished{0};
  std::atomic<bool> broken{false};  ///< calls did not match: no member touches memory any more
};

ThreadWorld::ThreadWorld(int size) : size_{size}, ranks_(static_cast<std::size_t>(size)) {}
ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::fail(int rank, const std::string& what) {
  Rank& failed = ranks_[static_cast<std::size_t>(rank)];
  failed.what = what;
  failed.state.store(Rank::State::failed, std::memory_order_release);
}

void ThreadWorld::finish(int rank) {
  ranks_[static_cast<std::size_t>(rank)].state.store(Rank::State::ended, std::memory_order_release);
}

ThreadWorld::Meeting& ThreadWorld::meeting(const Group& group, Lane lane) {
  const std::lock_guard lock{mutex_};
  for (const auto& meeting : meetings_)
    if (meeting->lane == lane && same_members(meeting->group, group)) return *meeting;
  return *meetings_.emplace_back(std::make_unique<Meeting>(group, lane));
}

std::string ThreadWorld::trouble_seen_by(int rank) const {
  for (const auto state : {Rank::State::failed, Rank::State::gave_up, Rank::State::ended})
    for (int peer = 0; peer < size_; ++peer) {
      const Rank& other = ranks_[static_cast<std::size_t>(peer)];
      if (peer == rank || other.state.load(std::memory_order_acquire) != state) continue;
      if (state == Rank::State::failed) return message("rank ", peer, " failed: ", other.what);
      return message("rank ", peer,
                     state == Rank::State::ended ? " has ended" : " gave up waiting");
    }
  return {};
}

ThreadTransport::ThreadTransport(ThreadWorld& world, int rank)
    : Transport{rank, world.size()},
      world_{world},
      exchange_connection_{Group{Axis::tp, 0, 1, world.size(), rank}, nullptr, 0} {
  SHARDMARK_CHECK(rank >= 0 && rank < world.size(), "rank ", rank, " in a world of ", world.size());
  // No op travels on the compute lane, so its meeting of all ranks is free for the control plane.
  exchange_connection_.meeting = &world.meeting(exchange_connection_.group, Lane::compute);
  for (int peer = 0; peer < world.size(); ++peer)
    endpoints_.push_back({peer, host_name(), ::getpid()});
  sources_.reserve(static_cast<std::size_t>(world.size()));
  targets_.reserve(static_cast<std::size_t>(world.size()));
}

ThreadTransport::~ThreadTransport() = default;

ThreadTransport::Connection* ThreadTransport::find(const Group& group, Lane lane) {
  Connection*& latest = latest_[index_of(lane)];
  if (latest != nullptr && same_members(latest->group, group)) return latest;
  for (Connection& connection : connections_[index_of(lane)])
    if (same_members(connection.group, group)) return latest = &connection;
  return nullptr;
}

void ThreadTransport::connect(const Group& group, Lane lane) {
  SHARDMARK_CHECK(lane != Lane::compute, "communication cannot use the compute lane");
  SHARDMARK_CHECK(group.world_rank(group.position) == rank(), "rank ", rank(), " is not member ",
                  group.position, " of ", group.to_string());
  if (find(group, lane) == nullptr)
    connections_[index_of(lane)].push_back({group, &world_.meeting(group, lane), 0});
}

void ThreadTransport::post(Flight& flight, Connection& connection, const ThreadWorld::Call& call) {
  connection.meeting->slots[static_cast<std::size_t>(connection.group.position)].call = call;
  ++connection.num_calls;
  flight = {&connection, false};
  connection.meeting->arrived.fetch_add(1, std::memory_order_acq_rel);
}

void ThreadTransport::start(const Op& op, Lane lane) {
  Flight& flight = flights_[index_of(lane)];
  SHARDMARK_CHECK(flight.connection == nullptr, "lane ", name_of(lane), " is busy");
  const Group* group = group_of(op);
  SHARDMARK_CHECK(group != nullptr, name_of(op), " is not communication");
  Connection* connection = find(*group, lane);
  SHARDMARK_CHECK(connection != nullptr, group->to_string(), " is not connected on lane ",
                  name_of(lane));
  ThreadWorld::Call call = std::visit([](const auto& o) { return ThreadWorld::Call::of(o); }, op);
  call.what = name_of(op);
  count(op);
  post(flight, *connection, call);
}

void ThreadTransport::start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
  ThreadWorld::Call call{.what = "exchange"};
  call.numel = static_cast<std::int64_t>(mine.size());
  call.source = mine.data();
  call.target = all.data();
  post(exchange_flight_, exchange_connection_, call);
}

bool ThreadTransport::test(Lane lane) {
  Flight& flight = flights_[index_of(lane)];
  SHARDMARK_CHECK(flight.connection != nullptr, "nothing is in flight on lane ", name_of(lane));
  if (advance(flight)) return true;
  do_my_parts();
  return false;
}

bool ThreadTransport::test_exchange() {
  if (advance(exchange_flight_)) return true;
  do_my_parts();
  return false;
}

/// Peers may look at another lane than this rank does, and wait for its part of that one.
void ThreadTransport::do_my_parts() {
  for (Flight& flight : flights_)
    if (flight.connection != nullptr) do_my_part(flight);
}

bool ThreadTransport::advance(Flight& flight) {
  if (!do_my_part(flight)) return false;
  const ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  if (meeting.finished.load(std::memory_order_acquire) < all) return false;
  flight = {};
  return true;
}

bool ThreadTransport::do_my_part(Flight& flight) {
  if (flight.moved) return true;
  ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  if (meeting.arrived.load(std::memory_order_acquire) < all) return false;
  move_bytes(*flight.connection);
  flight.moved = true;
  meeting.finished.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

/// Every member compares all calls with the first member's, so all of them throw the same error.
void ThreadTransport::move_bytes(const Connection& connection) {
  const auto& slots = connection.meeting->slots;
  const ThreadWorld::Call& first = slots.front().call;
  for (int member = 1; member < connection.group.size; ++member) {
    const ThreadWorld::Call& other = slots[static_cast<std::size_t>(member)].call;
    if (other.matches(first)) continue;
    connection.meeting->broken.store(true, std::memory_order_release);
    throw Error{message("rank ", connection.group.world_rank(member), " called ", other.to_string(),
                        " where rank ", connection.group.world_rank(0), " called ",
                        first.to_string(), " on ", connection.group.to_string())};
  }
  if (first.move != ThreadWorld::Call::Move::gather) {
    reduce_part(connection);
    return;
  }
  const auto bytes = static_cast<std::size_t>(
      first.what == "exchange" ? first.numel : first.numel * size_of(first.dtype));
  std::byte* to = slots[static_cast<std::size_t>(connection.group.position)].call.target;
  for (const auto& slot : slots) {
    if (bytes > 0 && slot.call.source != to) std::memcpy(to, slot.call.source, bytes);
    to += bytes;
  }
}

/// This member's part of a reduction: of an all-reduce a share of whole cache lines, written to all
/// members; of a reduce-scatter its own block.
void ThreadTransport::reduce_part(const Connection& connection) {
  const auto& slots = connection.meeting->slots;
  const ThreadWorld::Call& mine = slots[static_cast<std::size_t>(connection.group.position)].call;
  const bool scatter = mine.move == ThreadWorld::Call::Move::reduce_to_own;
  if (!scatter && connection.group.size == 1) return;
  const std::int64_t line = 64 / size_of(mine.dtype);
  const std::int64_t lines = (mine.numel + line - 1) / line;
  const std::int64_t share =
      scatter ? mine.numel : (lines + connection.group.size - 1) / connection.group.size * line;
  const std::int64_t first = share * connection.group.position;
  const std::int64_t count = scatter ? share : std::min(share, mine.numel - first);
  if (count <= 0) return;
  sources_.clear();
  targets_.clear();
  for (const auto& slot : slots) {
    sources_.push_back(slot.call.source + first * size_of(mine.dtype));
    if (!scatter) targets_.push_back(slot.call.target + first * size_of(mine.dtype));
  }
  if (scatter) targets_.push_back(mine.target);
  reduce(mine.dtype, mine.reduction, sources_, targets_, count);
}

std::string ThreadTransport::find_dead_peer() { return world_.trouble_seen_by(rank()); }

std::string ThreadTransport::give_up() {
  using State = ThreadWorld::Rank::State;
  const auto state_of = [this](int peer) -> std::atomic<State>& {
    return world_.ranks_[static_cast<std::size_t>(peer)].state;
  };
  state_of(rank()).store(State::gave_up, std::memory_order_release);
  std::string silent;
  for (int look = 0; look < 20; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    silent.clear();
    for (int peer = 0; peer < size(); ++peer)
      if (state_of(peer).load(std::memory_order_acquire) == State::runs)
        silent += message(silent.empty() ? "rank " : ", rank ", peer);
    if (silent.empty()) break;
  }
  return silent;
}

void ThreadTransport::withdraw() noexcept {
  for (Flight& flight : flights_) withdraw(flight);
  withdraw(exchange_flight_);
}

void ThreadTransport::withdraw(Flight& flight) noexcept {
  if (flight.connection == nullptr) return;
  ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  std::uint64_t arrived = meeting.arrived.load(std::memory_order_acquire);
  // Unless all have arrived nobody has looked at our pointers; taking our arrival back keeps it so.
  while (arrived < all)
    if (meeting.arrived.compare_exchange_weak(arrived, arrived - 1, std::memory_order_acq_rel)) {
      flight = {};
      return;
    }
  // Otherwise do our part and let the others do theirs, unless they fail as well.
  using State = ThreadWorld::Rank::State;
  const auto peers_run = [&] {
    for (int member = 0; member < flight.connection->group.size; ++member) {
      const auto peer = static_cast<std::size_t>(flight.connection->group.world_rank(member));
      const State state = world_.ranks_[peer].state.load(std::memory_order_acquire);
      if (member != flight.connection->group.position && state != State::failed) return true;
    }
    return false;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{5};
  while (!meeting.broken.load(std::memory_order_acquire) && peers_run() &&
         std::chrono::steady_clock::now() < deadline) {
    try {
      if (advance(flight)) return;
    } catch (const Error&) {
      break;
    }
    std::this_thread::yield();
  }
  flight = {};
}

void ThreadTransport::abort(int exit_code) {
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace shardmark
