#pragma once

// Context parallelism: the tokens of each sequence are split over the ranks of a cp group, and
// attention, the one layer that looks across tokens, exchanges what it needs.

#include "core/mesh.hpp"
#include "core/places.hpp"

#include <cstdint>
#include <string_view>

namespace shardmark {

/// How attention gets the keys and values of other ranks.
enum class ContextKind : std::uint8_t {
  ring,        ///< K and V travel a ring; results are merged by online softmax
  ulysses,     ///< all-to-all: from all heads of some tokens to some heads of all tokens, and back
  all_gather,  ///< every rank gathers all K and V, as in Llama 3's training
  hybrid,      ///< Ulysses inside groups of `ulysses` ranks, a ring over those groups
};
[[nodiscard]] std::string_view name_of(ContextKind kind);  ///< "ring", "ulysses", "all-gather", ...

/// Which tokens of a sequence a part holds. Causal masks leave the first parts of `contiguous` with
/// less to do than the last; the other two are balanced.
enum class TokenOrder : std::uint8_t {
  contiguous,  ///< part i: the i-th of P equal pieces
  zigzag,      ///< part i: pieces i and 2P - 1 - i of 2P
  striped,     ///< part i: every P-th token from the i-th on
};
[[nodiscard]] std::string_view name_of(TokenOrder order);
/// The places that part `part` of `parts` holds of a sequence of `seq` tokens.
[[nodiscard]] Places places_of(TokenOrder order, std::int64_t seq, int parts, int part);

/// How sequences are split. Part p of the order belongs to the p-th Ulysses group; each of its u
/// members holds a u-th of the part's rows, in their order. With `ring` and `all_gather` the groups
/// have one member, with `ulysses` there is one group, whose order is always contiguous.
struct ContextParallel {
  Group cp{.axis = Axis::cp};  ///< one member: not split
  ContextKind kind{ContextKind::ring};
  TokenOrder order{TokenOrder::contiguous};
  int ulysses{1};             ///< hybrid: members of a Ulysses group, a divisor of cp.size
  bool ulysses_outer{false};  ///< hybrid: they are cp.size / ulysses ranks apart, not neighbours
  int head_chunks{1};  ///< with overlap, not for a ring: a part of the heads travels behind another

  [[nodiscard]] bool is_split() const { return cp.size > 1; }
  /// Members of a Ulysses group: 1, `ulysses` or cp.size; 1 where nothing is split.
  [[nodiscard]] int ulysses_size() const;
  /// The chunks, at most `head_chunks`, in which the heads of a tp rank travel with overlap.
  /// Ulysses cuts the query heads that a rank has after the exchange, and its KV heads evenly or
  /// not at all; a hybrid never shares a KV head between chunks, each of which would send it round
  /// the ring; all-gather cuts KV heads evenly; a ring does not cut heads.
  [[nodiscard]] int usable_head_chunks(std::int64_t heads, std::int64_t kv_heads) const;
  /// The ranks that exchange heads, and those that exchange K and V, around this rank.
  [[nodiscard]] Group ulysses_group() const;
  [[nodiscard]] Group ring_group() const;
  /// Places that this rank holds of a sequence of `seq` tokens, and those of its Ulysses group.
  [[nodiscard]] Places local_places(std::int64_t seq) const;
  [[nodiscard]] Places group_places(std::int64_t seq) const;
  /// The same for any member of cp.
  [[nodiscard]] ContextParallel at(int position) const;
};

}  // namespace shardmark
