#pragma once

// What the members of a group share on one channel. Part of transport_threads.

#include "core/cpu/transport_threads.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cstring>

namespace shardmark {

/// What a member asks for; equal on all members of a meeting but for the pointers.
struct ThreadWorld::Call {
  enum class Move : std::uint8_t {
    nothing,
    gather_to_all,  ///< also the control plane's exchange
    exchange,       ///< blocks of one size, or by `counts`
    root_to_all,    ///< everything
    gather_to_root,
    scatter_from_root,
    reduce_to_all,
    reduce_to_root,
    reduce_to_own,  ///< each member its block
  };
  std::string_view what;
  Move move{Move::nothing};
  DType dtype{DType::i8};
  std::int64_t numel{0};  ///< elements of the smaller tensor: one member's contribution or share
  const std::byte* source{nullptr};
  std::byte* target{nullptr};
  Reduction reduction{Reduction::sum};
  int root{-1};
  std::span<const std::int64_t> counts{};

  [[nodiscard]] bool same_but_counts(const Call& other) const {
    return what == other.what && dtype == other.dtype && reduction == other.reduction &&
           numel == other.numel && root == other.root;
  }
  [[nodiscard]] bool matches(const Call& other) const {
    const auto same_counts = [&] {
      return counts.data() == other.counts.data() || std::ranges::equal(counts, other.counts);
    };
    return same_but_counts(other) && same_counts();
  }
  // One overload per collective; a missing one does not compile.
  static Call of(const AllReduce& o) {
    return {{},       Move::reduce_to_all,       o.x.dtype,  o.x.numel(),
            o.x.data, o.y ? o.y.data : o.x.data, o.reduction};
  }
  static Call of(const AllGather& o) {
    return {{}, Move::gather_to_all, o.x.dtype, o.x.numel(), o.x.data, o.y.data};
  }
  static Call of(const ReduceScatter& o) {
    return {{}, Move::reduce_to_own, o.x.dtype, o.y.numel(), o.x.data, o.y.data, o.reduction};
  }
  static Call of(const AllToAll& o) {
    return {{}, Move::exchange, o.x.dtype, o.x.numel() / o.group.size, o.x.data, o.y.data};
  }
  static Call of(const AllToAllV& o) {
    Call call{{}, Move::exchange, o.x.dtype, 0, o.x.data, o.y.data};
    call.counts = o.counts;
    return call;
  }
  static Call of(const Broadcast& o) {
    Call call{{}, Move::root_to_all, o.y.dtype, o.y.numel(), o.x.data, o.y.data};
    call.root = o.root;
    return call;
  }
  static Call of(const Reduce& o) {
    return {{},       Move::reduce_to_root, o.x.dtype, o.x.numel(), o.x.data,
            o.y.data, o.reduction,          o.root};
  }
  static Call of(const Gather& o) {
    Call call{{}, Move::gather_to_root, o.x.dtype, o.x.numel(), o.x.data, o.y.data};
    call.root = o.root;
    return call;
  }
  static Call of(const Scatter& o) {
    Call call{{}, Move::scatter_from_root, o.y.dtype, o.y.numel(), o.x.data, o.y.data};
    call.root = o.root;
    return call;
  }
  static Call of(const Barrier&) { return {}; }

  [[nodiscard]] std::string to_string() const {
    std::string text{what};
    if (reduction != Reduction::sum) text += message(" (", name_of(reduction), ")");
    if (move == Move::nothing) return text;
    if (counts.empty())
      text += message(" of ", numel, " x ", name_of(dtype));
    else
      text += message(" of ", name_of(dtype));
    if (root >= 0) text += message(" with root ", root);
    return text;
  }
};

/// A message on its way from one member to another. The sender turns `empty` into `posted`, the
/// receiver that into `claimed` and, when it has copied, into `empty` again.
struct alignas(64) ThreadWorld::Mailbox {
  enum class State : std::uint8_t { empty, posted, claimed };
  std::atomic<State> state{State::empty};
  DType dtype{DType::f32};
  std::int64_t numel{0};
  const std::byte* source{nullptr};
};

/// Where the members of a group meet on one channel. Both counters only grow: call number c is
/// complete once `finished` has reached c * size, and a member posts call c + 1 only after that, so
/// nobody overwrites a slot that somebody still reads.
struct ThreadWorld::Meeting {
  struct alignas(64) Slot {
    Call call;
    std::atomic<std::uint64_t> num_calls{0};  ///< the member's collectives, counted once posted
  };
  Meeting(const Group& members, Lane its_channel)
      : group{members},
        channel{its_channel},
        slots(static_cast<std::size_t>(members.size)),
        mailboxes(static_cast<std::size_t>(members.size) * static_cast<std::size_t>(members.size)) {
  }

  [[nodiscard]] Slot& slot(int member) { return slots[static_cast<std::size_t>(member)]; }
  [[nodiscard]] Mailbox& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from) * slots.size() + static_cast<std::size_t>(to)];
  }

  Group group;
  Lane channel;
  std::vector<Slot> slots;
  std::vector<Mailbox> mailboxes;  ///< of each ordered pair
  alignas(64) std::atomic<std::uint64_t> arrived{0};
  alignas(64) std::atomic<std::uint64_t> finished{0};
  std::atomic<bool> broken{false};  ///< calls did not match: no member touches memory any more
};

}  // namespace shardmark
