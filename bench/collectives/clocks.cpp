#include "bench/collectives/clocks.hpp"

#include "bench/harness/together.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace shardmark::bench::collectives {
namespace {

constexpr Lane lane = Lane::tp;
constexpr int fewest_rounds = 50, most_rounds = 2000;
constexpr std::int64_t enough_ns = 500'000'000;

/// One 8-byte message, waited for.
void move(Transport& transport, const Group& world, std::int64_t& stamp, int to, int from) {
  const Tensor word{1, DType::i8, Shape{8}, 0, 8, reinterpret_cast<std::byte*>(&stamp)};
  transport.start(SendRecv{to < 0 ? Tensor{} : word, from < 0 ? Tensor{} : word, world, to, from},
                  lane);
  Waiter waiter{transport};
  while (!transport.test(lane)) waiter.pause([] { return std::string{"clock alignment"}; });
}

struct Offset {
  std::int64_t offset_ns{0}, bound_ns{0};
};

/// Rank 0's side against `peer`. A word of 0 says that there are no more rounds.
Offset ask(Transport& transport, const Group& world, int peer) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  Offset best;
  const std::int64_t start = now_ns();
  for (int round = 0; round < most_rounds; ++round) {
    std::int64_t word = 1;
    const std::int64_t begin = now_ns();
    if (round >= fewest_rounds && begin - start > enough_ns) break;
    move(transport, world, word, peer, -1);
    move(transport, world, word, -1, peer);
    const std::int64_t end = now_ns();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    best = {begin + shortest / 2 - word, shortest / 2};
  }
  std::int64_t no_more = 0;
  move(transport, world, no_more, peer, -1);
  return best;
}

void answer(Transport& transport, const Group& world) {
  for (;;) {
    std::int64_t word = 0;
    move(transport, world, word, -1, 0);
    if (word == 0) return;
    word = now_ns();
    move(transport, world, word, 0, -1);
  }
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string Clocks::describe(const Transport& transport) const {
  std::string text;
  for (std::size_t rank = 0; rank < offset_ns.size(); ++rank)
    if (bound_ns[rank] > 0)
      text +=
          fmt::format("{} host {} {:+.1f} us within {:.1f} us", text.empty() ? "" : ",",
                      transport.endpoints()[rank].host, static_cast<double>(offset_ns[rank]) / 1e3,
                      static_cast<double>(bound_ns[rank]) / 1e3);
  return text.empty() ? "clocks: one host, one clock" : "clocks: offsets to rank 0:" + text;
}

Clocks align_clocks(Transport& transport) {
  const auto& endpoints = transport.endpoints();
  const auto size = endpoints.size();
  Clocks clocks{std::vector<std::int64_t>(size), std::vector<std::int64_t>(size)};
  std::vector<std::string> seen{endpoints.front().host};
  const Group world{Axis::tp, 0, 1, transport.size(), transport.rank()};
  for (std::size_t peer = 1; peer < size; ++peer) {
    const std::string& host = endpoints[peer].host;
    if (std::ranges::find(seen, host) != seen.end()) continue;
    seen.push_back(host);
    transport.connect(world, lane);
    Offset mine;
    if (transport.rank() == 0) mine = ask(transport, world, static_cast<int>(peer));
    if (transport.rank() == static_cast<int>(peer)) answer(transport, world);
    const Offset offset = exchange_all(transport, mine).front();
    for (std::size_t rank = peer; rank < size; ++rank) {
      if (endpoints[rank].host != host) continue;
      clocks.offset_ns[rank] = offset.offset_ns;
      clocks.bound_ns[rank] = offset.bound_ns;
    }
  }
  return clocks;
}

}  // namespace shardmark::bench::collectives
