#include "core/cpu/transport_threads.hpp"

#include "core/cpu/thread_meeting.hpp"
#include "core/host.hpp"
#include "core/record/channel.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace shardmark {

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

ThreadWorld::Meeting& ThreadWorld::meeting(const Group& group, Lane channel) {
  const std::lock_guard lock{mutex_};
  for (const auto& meeting : meetings_)
    if (meeting->channel == channel && same_members(meeting->group, group)) return *meeting;
  return *meetings_.emplace_back(std::make_unique<Meeting>(group, channel));
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

ThreadTransport::Connection* ThreadTransport::find(const Group& group, Lane channel) {
  Connection*& latest = latest_[index_of(channel)];
  if (latest != nullptr && same_members(latest->group, group)) return latest;
  for (Connection& connection : connections_[index_of(channel)])
    if (same_members(connection.group, group)) return latest = &connection;
  return nullptr;
}

void ThreadTransport::connect(const Group& group, Lane lane) {
  SHARDMARK_CHECK(lane != Lane::compute, "communication cannot use the compute lane");
  SHARDMARK_CHECK(group.world_rank(group.position) == rank(), "rank ", rank(), " is not member ",
                  group.position, " of ", group.to_string());
  const Lane channel = channel_of(lane);
  if (find(group, channel) == nullptr)
    connections_[index_of(channel)].push_back({group, &world_.meeting(group, channel), 0});
}

void ThreadTransport::post(Flight& flight, Connection& connection, const ThreadWorld::Call& call) {
  ThreadWorld::Meeting::Slot& slot = connection.meeting->slot(connection.group.position);
  slot.call = call;
  slot.num_calls.store(++connection.num_calls, std::memory_order_release);
  flight.connection = &connection;
  flight.moved = false;
  flight.is_message = false;
  connection.meeting->arrived.fetch_add(1, std::memory_order_acq_rel);
}

void ThreadTransport::post(Flight& flight, Connection& connection, const SendRecv& message) {
  using Mailbox = ThreadWorld::Mailbox;
  const int me = connection.group.position;
  flight.connection = &connection;
  flight.is_message = true;
  flight.message = message;
  flight.inbox = message.from < 0 ? nullptr : &connection.meeting->mailbox(message.from, me);
  flight.outbox = message.to < 0 ? nullptr : &connection.meeting->mailbox(me, message.to);
  if (flight.outbox == nullptr) return;
  SHARDMARK_CHECK(flight.outbox->state.load(std::memory_order_acquire) == Mailbox::State::empty,
                  "two lanes send to member ", message.to, " of ", connection.group.to_string(),
                  " at once");
  flight.outbox->dtype = message.x.dtype;
  flight.outbox->numel = message.x.numel();
  flight.outbox->source = message.x.data;
  flight.outbox->state.store(Mailbox::State::posted, std::memory_order_release);
}

void ThreadTransport::start(const Op& op, Lane lane) {
  Flight& flight = flights_[index_of(lane)];
  SHARDMARK_CHECK(flight.connection == nullptr, "lane ", name_of(lane), " is busy");
  const Group* group = group_of(op);
  SHARDMARK_CHECK(group != nullptr, name_of(op), " is not communication");
  Connection* connection = find(*group, channel_of(lane));
  SHARDMARK_CHECK(connection != nullptr, group->to_string(), " is not connected on lane ",
                  name_of(lane));
  count(op);
  std::visit(overloaded{
                 [&](const SendRecv& o) { post(flight, *connection, o); },
                 [&](const Communication auto& o) {
                   ThreadWorld::Call call = ThreadWorld::Call::of(o);
                   call.what = name_of(op);
                   post(flight, *connection, call);
                 },
                 [](const Local auto&) {},
             },
             op);
}

void ThreadTransport::start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
  ThreadWorld::Call call{.what = "exchange", .move = ThreadWorld::Call::Move::gather_to_all};
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
  if (flight.is_message) return advance_message(flight);
  if (!do_my_part(flight)) return false;
  const ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  if (meeting.finished.load(std::memory_order_acquire) < all) return false;
  flight.connection = nullptr;
  return true;
}

bool ThreadTransport::advance_message(Flight& flight) {
  const bool received = receive(flight);
  const bool sent =
      flight.outbox == nullptr ||
      flight.outbox->state.load(std::memory_order_acquire) == ThreadWorld::Mailbox::State::empty;
  if (received && sent) {
    flight.connection = nullptr;
    return true;
  }
  if (!received) check_peer(flight, false);
  if (!sent) check_peer(flight, true);
  return false;
}

bool ThreadTransport::do_my_part(Flight& flight) {
  if (flight.is_message) return receive(flight);
  if (flight.moved) return true;
  ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  if (meeting.arrived.load(std::memory_order_acquire) < all) return false;
  move_bytes(*flight.connection);
  flight.moved = true;
  meeting.finished.fetch_add(1, std::memory_order_acq_rel);
  return true;
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

/// A message that nobody has begun to copy is taken back; one that is being copied is there soon.
void ThreadTransport::withdraw_message(Flight& flight) noexcept {
  using State = ThreadWorld::Mailbox::State;
  if (flight.outbox != nullptr) {
    State expected = State::posted;
    if (!flight.outbox->state.compare_exchange_strong(expected, State::empty))
      while (flight.outbox->state.load(std::memory_order_acquire) == State::claimed)
        std::this_thread::yield();
  }
  flight.connection = nullptr;
}

void ThreadTransport::withdraw(Flight& flight) noexcept {
  if (flight.connection == nullptr) return;
  if (flight.is_message) return withdraw_message(flight);
  ThreadWorld::Meeting& meeting = *flight.connection->meeting;
  const std::uint64_t all = flight.connection->num_calls * meeting.slots.size();
  std::uint64_t arrived = meeting.arrived.load(std::memory_order_acquire);
  // Unless all have arrived nobody has looked at our pointers; taking our arrival back keeps it so.
  while (arrived < all)
    if (meeting.arrived.compare_exchange_weak(arrived, arrived - 1, std::memory_order_acq_rel)) {
      meeting.slot(flight.connection->group.position)
          .num_calls.store(flight.connection->num_calls - 1, std::memory_order_release);
      flight.connection = nullptr;
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
  flight.connection = nullptr;
}

void ThreadTransport::abort(int exit_code) {
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace shardmark
