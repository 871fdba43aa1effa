#pragma once

// What the members of a group share on one channel. Part of transport_threads.

#include "core/cpu/transport_threads.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace shardmark {

/// Distance at which members do not disturb each other: two cache lines, because processors fetch
/// them in pairs.
constexpr std::size_t apart = 128;
/// Up to here a member's contribution travels with its call.
constexpr std::size_t eager_bytes = 256;

/// What a member asks for; equal on all members of a meeting but for the pointers. With the number
/// of the call it fills a cache line, and a small contribution follows it, so that a peer gets all
/// of it at once.
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
  Reduction reduction{Reduction::sum};
  int root{-1};
  std::int64_t numel{0};  ///< elements of the smaller tensor: one member's contribution or share
  const std::byte* source{nullptr};
  std::byte* target{nullptr};
  const std::int64_t* counts{nullptr};  ///< of all_to_all_v: [size][size], from row to column

  [[nodiscard]] bool same_but_counts(const Call& other) const {
    return what == other.what && dtype == other.dtype && reduction == other.reduction &&
           numel == other.numel && root == other.root;
  }
  [[nodiscard]] bool matches(const Call& other, int size) const {
    const auto same_counts = [&] {
      return counts == other.counts ||
             (counts != nullptr && other.counts != nullptr &&
              std::equal(counts, counts + std::ptrdiff_t{size} * size, other.counts));
    };
    return same_but_counts(other) && same_counts();
  }
  /// Bytes of a member's contribution that travel with its call: where all members need those of
  /// all and they are few.
  [[nodiscard]] std::optional<std::size_t> eager_size(int size) const {
    const bool has_blocks = move == Move::exchange || move == Move::reduce_to_own;
    const bool is_symmetric = move == Move::nothing || move == Move::gather_to_all ||
                              move == Move::reduce_to_all || has_blocks;
    if (!is_symmetric || counts != nullptr) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(numel * size_of(dtype) * (has_blocks ? size : 1));
    return bytes <= eager_bytes ? std::optional{bytes} : std::nullopt;
  }
  // One overload per collective; a missing one does not compile.
  static Call of(const AllReduce& o) {
    return {.move = Move::reduce_to_all,
            .dtype = o.x.dtype,
            .reduction = o.reduction,
            .numel = o.x.numel(),
            .source = o.x.data,
            .target = o.y ? o.y.data : o.x.data};
  }
  static Call of(const AllGather& o) { return of(Move::gather_to_all, o.x, o.x, o.y); }
  static Call of(const ReduceScatter& o) {
    Call call = of(Move::reduce_to_own, o.y, o.x, o.y);
    call.reduction = o.reduction;
    return call;
  }
  static Call of(const AllToAll& o) {
    Call call = of(Move::exchange, o.x, o.x, o.y);
    call.numel /= o.group.size;
    return call;
  }
  static Call of(const AllToAllV& o) {
    Call call = of(Move::exchange, o.x, o.x, o.y);
    call.numel = 0;
    call.counts = o.counts.data();
    return call;
  }
  static Call of(const Broadcast& o) { return of(Move::root_to_all, o.y, o.x, o.y, o.root); }
  static Call of(const Reduce& o) {
    Call call = of(Move::reduce_to_root, o.x, o.x, o.y, o.root);
    call.reduction = o.reduction;
    return call;
  }
  static Call of(const Gather& o) { return of(Move::gather_to_root, o.x, o.x, o.y, o.root); }
  static Call of(const Scatter& o) { return of(Move::scatter_from_root, o.y, o.x, o.y, o.root); }
  static Call of(const Barrier&) { return {}; }

  [[nodiscard]] std::string to_string() const {
    std::string text{what};
    if (reduction != Reduction::sum) text += message(" (", name_of(reduction), ")");
    if (move == Move::nothing) return text;
    if (counts == nullptr)
      text += message(" of ", numel, " x ", name_of(dtype));
    else
      text += message(" of ", name_of(dtype));
    if (root >= 0) text += message(" with root ", root);
    return text;
  }

 private:
  static Call of(Move move, const Tensor& smaller, const Tensor& x, const Tensor& y,
                 int root = -1) {
    return {.move = move,
            .dtype = smaller.dtype,
            .root = root,
            .numel = smaller.numel(),
            .source = x.data,
            .target = y.data};
  }
};

/// A message on its way from one member to another. The sender turns `empty` into `posted`, the
/// receiver that into `claimed` and, when it has copied, into `empty` again.
struct alignas(apart) ThreadWorld::Mailbox {
  enum class State : std::uint8_t { empty, posted, claimed };
  std::atomic<State> state{State::empty};
  DType dtype{DType::f32};
  std::int64_t numel{0};
  const std::byte* source{nullptr};
};

/// Where the members of a group meet on one channel. Each counts its calls: posted, begun (it
/// touches the others' memory) and finished. Every count is written by its member alone, without a
/// locked instruction on a line that others wait for. A member posts call c + 1 only once its call
/// c is complete:
/// - a small call when all have posted it and the member has its result, made from the copies in
/// the
///   slots: one line or two travel per member;
/// - any other when all have finished it, since they touch each other's memory until then.
/// In both cases whoever posts c + 1 has read all of c, so a member that sees call c + 1 of all may
/// post c + 2 where c was: two slots in turn.
///
/// A member that gives up may take its call back, but not once somebody touches its memory. It says
/// `withdrawn` before it looks at who has begun, the others say `begun` before they look at
/// `withdrawn`: with sequential consistency at least one of the two sees the other. From then on
/// the meeting is over.
struct ThreadWorld::Meeting {
  struct alignas(apart) Slot {
    Call call;
    std::atomic<std::uint64_t> num_posted{0};
    std::array<std::byte, eager_bytes> contribution;
  };
  static_assert(sizeof(Call) + sizeof(std::uint64_t) == 64, "not a cache line");
  struct alignas(apart) Count {
    std::atomic<std::uint64_t> value{0};
  };
  Meeting(const Group& members, Lane its_channel)
      : group{members},
        channel{its_channel},
        slots(2 * static_cast<std::size_t>(members.size)),
        num_begun(static_cast<std::size_t>(members.size)),
        num_finished(num_begun.size()),
        mailboxes(num_begun.size() * num_begun.size()) {}

  /// Of the member's call of that number.
  [[nodiscard]] Slot& slot(int member, std::uint64_t call) {
    return slots[2 * static_cast<std::size_t>(member) + call % 2];
  }
  /// Of the last call that the member has posted.
  [[nodiscard]] Slot& latest_slot(int member) {
    Slot& even = slot(member, 0);
    Slot& odd = slot(member, 1);
    const bool is_even = even.num_posted.load(std::memory_order_acquire) >
                         odd.num_posted.load(std::memory_order_acquire);
    return is_even ? even : odd;
  }
  [[nodiscard]] Mailbox& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from) * num_begun.size() +
                     static_cast<std::size_t>(to)];
  }
  [[nodiscard]] bool all_posted(std::uint64_t call) const {
    for (std::size_t i = call % 2; i < slots.size(); i += 2)
      if (slots[i].num_posted.load(std::memory_order_acquire) < call) return false;
    return true;
  }
  [[nodiscard]] bool all_finished(std::uint64_t call) const {
    return std::ranges::all_of(num_finished, [call](const Count& count) {
      return count.value.load(std::memory_order_acquire) >= call;
    });
  }
  /// Whether `member`, who sees that all have posted `call`, may touch their memory. Not while
  /// somebody withdraws: ask again.
  [[nodiscard]] bool begin(int member, std::uint64_t call) {
    std::atomic<std::uint64_t>& begun = num_begun[static_cast<std::size_t>(member)].value;
    begun.store(call, std::memory_order_seq_cst);
    if (num_withdrawn.load(std::memory_order_seq_cst) == 0) return true;
    begun.store(call - 1, std::memory_order_seq_cst);
    return false;
  }
  void finish(int member, std::uint64_t call) {
    num_finished[static_cast<std::size_t>(member)].value.store(call, std::memory_order_release);
  }
  /// Takes back `call` of `member`, who has not begun it; false if somebody has.
  [[nodiscard]] bool withdraw(int member, std::uint64_t call) {
    num_withdrawn.fetch_add(1, std::memory_order_seq_cst);
    if (std::ranges::none_of(num_begun, [call](const Count& begun) {
          return begun.value.load(std::memory_order_seq_cst) >= call;
        })) {
      slot(member, call)
          .num_posted.store(std::max<std::uint64_t>(call, 2) - 2, std::memory_order_release);
      return true;
    }
    num_withdrawn.fetch_sub(1, std::memory_order_seq_cst);
    return false;
  }

  Group group;
  Lane channel;
  std::vector<Slot> slots;                     ///< two of each member
  std::vector<Count> num_begun, num_finished;  ///< of each member
  std::vector<Mailbox> mailboxes;              ///< of each ordered pair
  // Read in every call and hardly ever written.
  alignas(apart) std::atomic<int> num_withdrawn{0};
  std::atomic<bool> broken{false};  ///< calls did not match: no member touches memory any more
};

}  // namespace shardmark
