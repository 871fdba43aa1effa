#pragma once

// SendRecv between any two members.

#include "core/error.hpp"
#include "tests/support/collective_data.hpp"

namespace shardmark::conformance {

/// Every member sends to the one `shift` places on; shift 0 is to itself.
inline void messages_go_round(Transport& transport) {
  const Group group = connected_world(transport);
  for (int shift = 0; shift < group.size; ++shift)
    for (const DType dtype : dtypes)
      for (const std::int64_t numel : sizes) {
        const int to = (group.position + shift) % group.size;
        const int from = (group.position + group.size - shift) % group.size;
        Data x{dtype, numel};
        Data y{dtype, numel};
        x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
        communicate(transport, SendRecv{x.tensor(), y.tensor(), group, to, from}, Lane::tp);
        y.expect(transport, message("send_recv by ", shift, " of ", numel, " x ", name_of(dtype)),
                 [&](std::int64_t i) { return value_at(from, i); });
      }
}

/// Only sending and only receiving; messages of different lengths stay in order.
inline void messages_stay_in_order(Transport& transport) {
  const Group group = connected_world(transport);
  const int last = group.size - 1;
  if (last == 0) return;
  for (int round = 0; round < 200; ++round) {
    const bool sends = (round / 3 % 2 == 0) == (group.position == 0);
    if (group.position != 0 && group.position != last) continue;
    const int peer = group.position == 0 ? last : 0;
    Data data{DType::f32, round * 17 % 101};
    const auto value = [&](std::int64_t i) { return value_at(round, i); };
    if (sends) data.fill(value);
    communicate(transport,
                sends ? SendRecv{data.tensor(), Tensor{}, group, peer, -1}
                      : SendRecv{Tensor{}, data.tensor(), group, -1, peer},
                Lane::tp);
    data.expect(transport, message("message ", round), value);
  }
}

/// Whose message has been taken may find the receiver in the next collective already.
inline void messages_and_collectives_alternate(Transport& transport) {
  const Group group = connected_world(transport);
  const int last = group.size - 1;
  if (last == 0) return;
  Data x{DType::i32, 8};
  Data y{DType::i32, 8};
  for (int round = 0; round < 300; ++round) {
    const auto value = [&](std::int64_t i) { return value_at(round, i); };
    if (group.position == 0) {
      x.fill(value);
      communicate(transport, SendRecv{x.tensor(), {}, group, last, -1}, Lane::tp);
    } else if (group.position == last) {
      communicate(transport, SendRecv{{}, x.tensor(), group, -1, 0}, Lane::tp);
      x.expect(transport, message("message ", round), value);
    }
    communicate(transport, Broadcast{x.tensor(), y.tensor(), group, last}, Lane::tp);
    y.expect(transport, message("broadcast ", round), value);
  }
}

/// A message that does not fit an eager buffer.
inline void large_messages_arrive(Transport& transport) {
  const Group group = connected_world(transport);
  constexpr std::int64_t numel = 3000001;
  Data x{DType::i8, numel};
  Data y{DType::i8, numel};
  x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
  const int next = (group.position + 1) % group.size;
  const int previous = (group.position + group.size - 1) % group.size;
  communicate(transport, SendRecv{x.tensor(), y.tensor(), group, next, previous}, Lane::tp);
  y.expect(transport, "a large message", [&](std::int64_t i) { return value_at(previous, i); });
}

/// Messages and collectives in flight on several lanes at once, started and tested in an order that
/// differs from rank to rank.
inline void messages_on_lanes_are_independent(Transport& transport) {
  constexpr Lane lanes[] = {Lane::tp, Lane::cp, Lane::dp};
  Group group;
  for (const Lane lane : lanes) group = connected_world(transport, lane);
  const int next = (group.position + 1) % group.size;
  const int previous = (group.position + group.size - 1) % group.size;
  for (std::size_t round = 0; round < 20; ++round) {
    const std::int64_t numel = 1000 + static_cast<std::int64_t>(round) * 501;
    Data x[] = {{DType::f32, numel}, {DType::f32, numel}, {DType::f32, numel}};
    Data y[] = {{DType::f32, numel}, {DType::f32, numel}, {DType::f32, numel}};
    const auto turn = [&](std::size_t i) {
      return (i + static_cast<std::size_t>(transport.rank()) + round) % 3;
    };
    const auto value = [](std::size_t i, int rank, std::int64_t e) {
      return value_at(rank + static_cast<int>(i), e);
    };
    for (std::size_t step = 0; step < 3; ++step) {
      const std::size_t i = turn(step);
      x[i].fill([&](std::int64_t e) { return value(i, transport.rank(), e); });
      const Tensor& from = x[i].tensor();
      const Tensor& to = y[i].tensor();
      transport.start(i == 0   ? Op{SendRecv{from, to, group, next, previous}}
                      : i == 1 ? Op{SendRecv{from, to, group, previous, next}}
                               : Op{AllReduce{from, group, Reduction::max, to}},
                      lanes[i]);
    }
    for (std::size_t step = 3; step-- > 0;) finish(transport, lanes[turn(step)]);
    y[0].expect(transport, "messages onwards",
                [&](std::int64_t e) { return value(0, previous, e); });
    y[1].expect(transport, "messages back", [&](std::int64_t e) { return value(1, next, e); });
    y[2].expect(transport, "the collective beside messages", [&](std::int64_t e) {
      double largest = value(2, 0, e);
      for (int rank = 1; rank < group.size; ++rank) largest = std::max(largest, value(2, rank, e));
      return largest;
    });
  }
}

/// A pipeline's neighbours: every rank sends and receives in both directions at once, each message
/// between the two lanes of its direction. If it `wraps`, the last rank and the first are
/// neighbours as well, as in interleaved schedules; of two ranks each is then before and behind
/// the other.
inline void neighbours_talk(Transport& transport, bool wraps) {
  constexpr Lane lanes[] = {Lane::pp_fwd_send, Lane::pp_fwd_recv, Lane::pp_bwd_send,
                            Lane::pp_bwd_recv};
  Group group;
  for (const Lane lane : lanes) group = connected_world(transport, lane);
  if (group.size == 1) return;
  const auto neighbour = [&](int distance) {
    const int member = group.position + distance;
    if (wraps) return (member + group.size) % group.size;
    return member < group.size ? member : -1;
  };
  const int next = neighbour(1);
  const int previous = neighbour(-1);
  const int peers[] = {next, previous, previous, next};
  for (int round = 0; round < 30; ++round) {
    const std::int64_t forward = round * 997 % 3001;
    const std::int64_t backward = (round * 997 + 1500) % 3001;
    Data data[] = {{DType::f32, forward},
                   {DType::f32, forward},
                   {DType::i32, backward},
                   {DType::i32, backward}};
    const auto value = [&](int sender, std::size_t lane, std::int64_t i) {
      return value_at(sender + 3 * round + (lane < 2 ? 0 : 1), i);
    };
    const auto turn = [&](int step) {
      return static_cast<std::size_t>(step + transport.rank() + round) % 4;
    };
    for (int step = 0; step < 4; ++step) {
      const std::size_t i = turn(step);
      const bool sends = i % 2 == 0;
      if (peers[i] < 0) continue;
      if (sends) data[i].fill([&](std::int64_t e) { return value(group.position, i, e); });
      const Tensor& tensor = data[i].tensor();
      transport.start(sends ? SendRecv{tensor, {}, group, peers[i], -1}
                            : SendRecv{{}, tensor, group, -1, peers[i]},
                      lanes[i]);
    }
    for (int step = 4; step-- > 0;)
      if (peers[turn(step)] >= 0) finish(transport, lanes[turn(step)]);
    for (const std::size_t i : {1U, 3U})
      if (peers[i] >= 0)
        data[i].expect(transport, message(name_of(lanes[i]), ", round ", round),
                       [&](std::int64_t e) { return value(peers[i], i, e); });
  }
}

inline void stages_send_while_they_receive(Transport& transport) {
  neighbours_talk(transport, false);
}
inline void the_last_stage_sends_to_the_first(Transport& transport) {
  neighbours_talk(transport, true);
}

}  // namespace shardmark::conformance
