#pragma once

#include "core/transport.hpp"

#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

namespace shardmark::bench {

/// Runs `action` on rank 0 while the others wait. An error of it is thrown on every rank, so that
/// all end alike. Collective.
void on_rank_0(Transport& transport, const std::function<void()>& action);

/// A plain value (no pointers in it) of every rank, in rank order. Collective over the world.
template <class T>
[[nodiscard]] std::vector<T> exchange_all(Transport& transport, const T& mine,
                                          Transport::Waiting waiting = Transport::Waiting::active) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = transport.exchange(std::as_bytes(std::span{&mine, 1}), waiting);
  std::vector<T> all(static_cast<std::size_t>(transport.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

}  // namespace shardmark::bench
