#pragma once

// A collective algorithm as data: for each rank (member of the group) an ordered list of steps on
// numbered slots. Generators (ring.cpp, recursive.cpp, ...) make plans, `validate` proves that a
// plan does what its collective says, `lower` turns one rank's part into ops that every backend
// runs, `to_text`, `parse_plan` and `to_svg` show it.
//
// Slots. A rank's memory is cut into slots of (nearly) equal size, numbered
//   [0, I)          input:   the caller's x, never written
//   [I, I + O)      output:  the caller's y
//   [I + O, ...)    scratch: memory of the plan
// A block (see CollectiveFacts) is cut into `slots_per_block` slots, which may differ by an element
// where it does not divide. So all_gather of n ranks with one slot per block has I = 1, O = n.
// Slot s is at position s mod slots_per_block of its block, in scratch as well, and data only moves
// between slots of equal position: both ends of a message know its length. A rank without an input
// (all but the root of broadcast and scatter) or output (all but the root of reduce and gather) has
// no such slots to use, though they are numbered.

#include "collectives/collective.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// One action of one rank; its steps run in order. 28 bytes, since large plans have millions.
struct Step {
  enum class Kind : std::uint8_t {
    exchange,  ///< send `count` slots from `source` to `to`, and at the same time receive
               ///< `count_in` slots from `from` to `target`; either side may be missing (peer -1,
               ///< count 0). A peer with count 0 is an empty message: pure synchronisation.
    copy,      ///< `target`... = `source`..., `count` slots
  };
  enum class Receive : std::uint8_t { store, reduce };  ///< reduce: target = target (op) received
  Kind kind{Kind::exchange};
  Receive receive{Receive::store};
  std::int16_t reserved{0};
  std::int32_t to{-1}, from{-1};
  std::int32_t source{0}, target{0};
  std::int32_t count{0}, count_in{0};
};

/// An algorithm laid out for a collective, a number of ranks and a root.
struct Plan {
  Collective collective{Collective::all_reduce};
  std::string algorithm;
  int num_ranks{1};
  int root{0};
  int slots_per_block{1};
  int num_scratch{0};  ///< scratch slots per rank
  /// steps[first[r]] ... steps[first[r + 1] - 1] are rank r's.
  std::vector<Step> steps;
  std::vector<std::size_t> first;

  [[nodiscard]] int num_input() const;
  [[nodiscard]] int num_output() const;
  [[nodiscard]] int num_slots() const { return num_input() + num_output() + num_scratch; }
  [[nodiscard]] bool has_input(int rank) const;
  [[nodiscard]] bool has_output(int rank) const;
  [[nodiscard]] std::span<const Step> steps_of(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return {steps.data() + first[r], first[r + 1] - first[r]};
  }
  /// What `rank` sends, in slots; times the slot size it is the bytes across its link.
  [[nodiscard]] std::int64_t slots_sent(int rank) const;
};

/// Appends the steps of rank 0, 1, ... in turn; what generators use.
class PlanBuilder {
 public:
  PlanBuilder(Collective collective, std::string algorithm, int num_ranks, int root,
              int slots_per_block, int num_scratch);
  /// Starts the next rank.
  void next_rank();
  void exchange(int to, int source, int count, int from, int target, int count_in,
                Step::Receive receive);
  void send(int to, int source, int count);
  void receive(int from, int target, int count, Step::Receive receive);
  void copy(int source, int target, int count);
  [[nodiscard]] Plan finish() &&;

 private:
  Plan plan_;
};

/// Which algorithms exist and what each can do.
struct Algorithm {
  std::string_view name;   ///< "ring"
  std::string_view about;  ///< one line: when it wins
  bool (*supports)(Collective);
  /// `hosts[i]` is the host of member i; only hierarchical and two-level plans look at it.
  Plan (*make)(Collective collective, std::span<const int> hosts, int root);
};
[[nodiscard]] std::span<const Algorithm> algorithms();
/// Those of `collective`, e.g. {"ring", "recursive", ...}.
[[nodiscard]] std::vector<std::string_view> algorithm_names(Collective collective);
/// Throws InputError naming what exists when there is no such algorithm for the collective.
[[nodiscard]] Plan make_plan(Collective collective, std::string_view algorithm,
                             std::span<const int> hosts, int root = 0);

/// What is wrong with a plan, none if it is right: every output slot ends with what the collective
/// says (contents are followed as sets of contributions), no input slot is written, every send
/// meets a receive of equal length in order, and nothing deadlocks when sends wait for their
/// receives. Each problem names rank and step. Linear in the number of slots moved.
[[nodiscard]] std::vector<std::string> validate(const Plan& plan);

/// One line per step after a header; `parse_plan` reads it back and throws InputError with the line
/// on anything malformed. Parsing does not validate.
[[nodiscard]] std::string to_text(const Plan& plan);
[[nodiscard]] Plan parse_plan(const std::string& text);
/// Ranks as columns, time downwards, an arrow per message.
[[nodiscard]] std::string to_svg(const Plan& plan);

/// One rank's part of a plan, bound to a call's buffers, as ops for one lane in order.
class BoundPlan {
 public:
  /// `scratch` is a contiguous tensor of the call's dtype with at least scratch_numel() elements
  /// (absent when that is 0). Only the tensors' memory has to outlive this.
  BoundPlan(const Plan& plan, const Call& call, const Tensor& scratch);
  /// Elements of scratch that `plan` needs for `call`: scratch slots, a landing place for received
  /// slots that are to be reduced, and a copy of the input where the call is in place and the plan
  /// reads input after it wrote output.
  [[nodiscard]] static std::int64_t scratch_numel(const Plan& plan, const Call& call);
  /// The ops: SendRecv, Combine, Copy, and for `avg` one Divide. Empty messages are left out
  /// on both sides.
  [[nodiscard]] std::span<const Op> ops() const { return ops_; }
  /// Bytes that this rank sends.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  std::vector<Op> ops_;
  std::int64_t bytes_sent_{0};
};

}  // namespace shardmark
