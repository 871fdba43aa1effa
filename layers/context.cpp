#include "layers/context.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace shardmark {

std::string_view name_of(ContextKind kind) {
  static constexpr std::array<std::string_view, 4> names{"ring", "ulysses", "all-gather", "hybrid"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(TokenOrder order) {
  static constexpr std::array<std::string_view, 3> names{"contiguous", "zigzag", "striped"};
  return names[static_cast<std::size_t>(order)];
}

Places places_of(TokenOrder order, std::int64_t seq, int parts, int part) {
  SHARDMARK_CHECK(seq % parts == 0, seq, " tokens in ", parts, " parts");
  const std::int64_t count = seq / parts;
  switch (order) {
    case TokenOrder::contiguous:
      return {{Places::Run{part * count, count, 1}, Places::Run{}}};
    case TokenOrder::striped:
      return {{Places::Run{part, count, parts}, Places::Run{}}};
    case TokenOrder::zigzag:
      break;
  }
  SHARDMARK_CHECK(count % 2 == 0, seq, " tokens in ", 2 * parts, " pieces");
  const std::int64_t half = count / 2;
  return {{Places::Run{part * half, half, 1}, Places::Run{(2 * parts - 1 - part) * half, half, 1}}};
}

int ContextParallel::ulysses_size() const {
  if (!is_split()) return 1;
  switch (kind) {
    case ContextKind::ulysses:
      return cp.size;
    case ContextKind::hybrid:
      return ulysses;
    default:
      return 1;
  }
}

int ContextParallel::usable_head_chunks(std::int64_t heads, std::int64_t kv_heads) const {
  const int wanted = std::max(1, head_chunks), degree = ulysses_size();
  if (is_split() && kind == ContextKind::all_gather)
    return static_cast<int>(std::gcd(std::int64_t{wanted}, kv_heads));
  if (degree == 1) return 1;
  const std::int64_t kept = heads / degree, kv_kept = std::max<std::int64_t>(1, kv_heads / degree);
  const bool has_ring = degree < cp.size;
  const auto cuts = [&](int chunks) {
    if (kept % chunks != 0) return false;
    return kv_kept % chunks == 0 || (!has_ring && chunks % kv_kept == 0);
  };
  int chunks = wanted;
  while (!cuts(chunks)) --chunks;
  return chunks;
}

Group ContextParallel::ulysses_group() const {
  const int members = ulysses_size(), rings = cp.size / members;
  const int step = ulysses_outer ? rings : 1;
  const int position = cp.position / step % members;
  return {cp.axis, cp.world_rank(cp.position - position * step), cp.stride * step, members,
          position};
}

Group ContextParallel::ring_group() const {
  const int members = ulysses_size(), rings = cp.size / members;
  const int step = ulysses_outer ? 1 : members;
  const int position = cp.position / step % rings;
  return {cp.axis, cp.world_rank(cp.position - position * step), cp.stride * step, rings, position};
}

Places ContextParallel::group_places(std::int64_t seq) const {
  const Group ring = ring_group();
  // A single part is the sequence itself.
  return places_of(ring.size == 1 ? TokenOrder::contiguous : order, seq, ring.size, ring.position);
}

Places ContextParallel::local_places(std::int64_t seq) const {
  const Group group = ulysses_group();
  const Places places = group_places(seq);
  SHARDMARK_CHECK(places.count() % group.size == 0, places.count(), " tokens on ", group.size,
                  " ranks");
  const std::int64_t count = places.count() / group.size;
  return places.slice(group.position * count, count);
}

ContextParallel ContextParallel::at(int position) const {
  ContextParallel other = *this;
  other.cp.position = position;
  return other;
}

}  // namespace shardmark
