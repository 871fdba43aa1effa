// Runs a plan without data. Ranks step on as far as their messages meet; a slot's content is
// followed as the number of contributions in it and the sum of one 64-bit random number per
// contribution, so that different contents agree with a probability of 2^-64.

#include "collectives/plan.hpp"
#include "collectives/slot_names_internal.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace shardmark {
namespace {

constexpr std::size_t max_problems = 20;
/// Slots of all ranks: 4 GiB of contents.
constexpr std::int64_t max_slots = std::int64_t{1} << 28;

struct Content {
  std::uint64_t fingerprint{0};
  std::int64_t num_contributions{0};
  bool operator==(const Content&) const = default;
};

/// What input slot `slot` of `rank` holds.
Content contribution(int rank, int slot) {
  std::uint64_t z = (static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(slot)) +
                    0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return {z ^ (z >> 31), 1};
}

Content operator+(const Content& a, const Content& b) {
  return {a.fingerprint + b.fingerprint, a.num_contributions + b.num_contributions};
}
Content operator-(const Content& a, const Content& b) {
  return {a.fingerprint - b.fingerprint, a.num_contributions - b.num_contributions};
}

/// What can be said of a step alone.
class StepRules {
 public:
  StepRules(const Plan& plan, std::vector<std::string>& problems)
      : plan_{plan}, problems_{problems} {}

  void check() {
    if (plan_.num_ranks < 1 || plan_.slots_per_block < 1 || plan_.num_scratch < 0 ||
        plan_.first.size() != static_cast<std::size_t>(plan_.num_ranks) + 1 || plan_.root < 0 ||
        plan_.root >= plan_.num_ranks) {
      problems_.push_back("the plan's header contradicts itself");
      return;
    }
    if (std::int64_t{plan_.num_slots()} * plan_.num_ranks > max_slots)
      problems_.push_back(message(plan_.num_slots(), " slots on each of ", plan_.num_ranks,
                                  " ranks are too many to follow; at most ", max_slots, " in all"));
    if (plan_.collective == Collective::all_to_all_v &&
        (plan_.num_scratch > 0 || plan_.slots_per_block > 1))
      problems_.push_back("all_to_all_v has blocks of any length: no scratch, one slot per block");
    for (rank_ = 0; rank_ < plan_.num_ranks; ++rank_) {
      step_ = 0;
      for (const Step& step : plan_.steps_of(rank_)) {
        if (problems_.size() >= max_problems) return;
        check_step(step);
        ++step_;
      }
    }
  }

 private:
  template <class... Parts>
  void fail(const Parts&... parts) {
    problems_.push_back(message("rank ", rank_, " step ", step_, ": ", parts...));
  }

  void check_step(const Step& step) {
    if (step.kind == Step::Kind::copy) {
      check_range("copies from", step.source, step.count, false);
      check_range("copies to", step.target, step.count, true);
      if (step.count < 1) fail("copies ", step.count, " slots");
      if (overlaps(step.source, step.count, step.target, step.count))
        fail("copies a range onto itself");
      if (position(step.source) != position(step.target))
        fail("copies ", describe_slot(plan_, step.source), " to ",
             describe_slot(plan_, step.target), ", another position in its block");
      return;
    }
    if (step.to < 0 && step.from < 0) fail("neither sends nor receives");
    if (step.to >= 0) check_peer("sends to", step.to, step.count);
    if (step.from >= 0) check_peer("receives from", step.from, step.count_in);
    if (step.to >= 0) check_range("sends", step.source, step.count, false);
    if (step.from >= 0) check_range("receives into", step.target, step.count_in, true);
    const bool reduces = step.receive == Step::Receive::reduce;
    if (step.from >= 0 && reduces && !facts_of(plan_.collective).has_reduction)
      fail("reduces, and ", name_of(plan_.collective), " has no reduction");
    if (step.to >= 0 && step.from >= 0 && !reduces &&
        overlaps(step.source, step.count, step.target, step.count_in))
      fail("receives into what it sends");
  }

  void check_peer(std::string_view what, int peer, int count) {
    if (peer >= plan_.num_ranks) fail(what, " rank ", peer, " of ", plan_.num_ranks);
    if (peer == rank_) fail(what, " itself");
    if (count < 0) fail(what, " rank ", peer, ' ', count, " slots");
  }

  void check_range(std::string_view what, int slot, int count, bool written) {
    if (count == 0) return;
    const int input = plan_.num_input(), output = input + plan_.num_output();
    const auto region = [&](int s) { return s < input ? 0 : s < output ? 1 : 2; };
    const std::int64_t end = std::int64_t{slot} + count;
    if (slot < 0 || end > plan_.num_slots())
      fail(what, " slots ", slot, " to ", end - 1, ", there are ", plan_.num_slots());
    else if (region(slot) != region(static_cast<int>(end) - 1))
      fail(what, " slots ", slot, " to ", end - 1, ", which lie in two buffers");
    else if (region(slot) == 0 && written)
      fail(what, ' ', describe_slot(plan_, slot), ", and the input is never written");
    else if (region(slot) == 0 && !plan_.has_input(rank_))
      fail(what, ' ', describe_slot(plan_, slot), ", which only the root has");
    else if (region(slot) == 1 && !plan_.has_output(rank_))
      fail(what, ' ', describe_slot(plan_, slot), ", which only the root has");
  }

  [[nodiscard]] int position(int slot) const { return slot % plan_.slots_per_block; }
  [[nodiscard]] static bool overlaps(int a, int a_count, int b, int b_count) {
    return a < b + b_count && b < a + a_count;
  }

  const Plan& plan_;
  std::vector<std::string>& problems_;
  int rank_{0};
  std::size_t step_{0};
};

/// All ranks' slots and steps.
class Run {
 public:
  Run(const Plan& plan, std::vector<std::string>& problems)
      : plan_{plan},
        problems_{problems},
        num_slots_{static_cast<std::size_t>(plan.num_slots())},
        contents_(num_slots_ * static_cast<std::size_t>(plan.num_ranks)),
        ranks_(static_cast<std::size_t>(plan.num_ranks)) {
    for (int rank = 0; rank < plan.num_ranks; ++rank)
      for (int slot = 0; plan.has_input(rank) && slot < plan.num_input(); ++slot)
        content(rank, slot) = contribution(rank, slot);
    if (plan.collective == Collective::barrier) know_themselves();
  }

  /// False if some rank cannot finish.
  bool run() {
    for (int rank = plan_.num_ranks - 1; rank >= 0; --rank) ready_.push_back(rank);
    while (!ready_.empty() && problems_.size() < max_problems) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (advance(rank)) {
      }
    }
    if (problems_.size() >= max_problems) return false;
    return explain_stuck();
  }

  [[nodiscard]] const Content& output(int rank, int slot) const {
    return contents_[static_cast<std::size_t>(rank) * num_slots_ +
                     static_cast<std::size_t>(plan_.num_input() + slot)];
  }
  /// Barrier: ranks whose arrival `rank` does not know of.
  [[nodiscard]] std::vector<int> unheard(int rank) const {
    std::vector<int> missing;
    for (int other = 0; other < plan_.num_ranks; ++other)
      if ((state(rank).known[static_cast<std::size_t>(other) / 64] >> (other % 64) & 1) == 0)
        missing.push_back(other);
    return missing;
  }

 private:
  struct State {
    std::size_t step{0};
    bool entered{false}, sends{false}, receives{false};
    std::vector<Content> arrived;
    std::vector<std::uint64_t> known, heard;  ///< barrier: bit per rank
  };

  [[nodiscard]] State& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const State& state(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Content& content(int rank, int slot) {
    return contents_[static_cast<std::size_t>(rank) * num_slots_ + static_cast<std::size_t>(slot)];
  }
  [[nodiscard]] const Step& step_of(int rank) const {
    return plan_.steps_of(rank)[state(rank).step];
  }
  [[nodiscard]] bool finished(int rank) const {
    return state(rank).step == plan_.steps_of(rank).size();
  }

  template <class... Parts>
  void fail(int rank, const Parts&... parts) {
    if (problems_.size() < max_problems)
      problems_.push_back(message("rank ", rank, " step ", state(rank).step, ": ", parts...));
  }

  void know_themselves() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      state(rank).known.resize(static_cast<std::size_t>(plan_.num_ranks) / 64 + 1);
      state(rank).known[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
    }
  }

  /// True when the rank's step is over and it may go on.
  bool advance(int rank) {
    if (finished(rank)) return false;
    State& self = state(rank);
    const Step& step = step_of(rank);
    if (step.kind == Step::Kind::copy) {
      for (int i = 0; i < step.count; ++i) {
        expect_content(rank, "copies", step.source + i);
        content(rank, step.target + i) = content(rank, step.source + i);
      }
    } else {
      if (!self.entered) {
        self.entered = true;
        self.sends = step.to >= 0;
        self.receives = step.from >= 0;
        if (self.sends) try_match(rank, step.to);
        if (self.receives) try_match(step.from, rank);
      }
      if (self.sends || self.receives) return false;
      take_arrived(rank, step);
      self.entered = false;
    }
    ++self.step;
    return true;
  }

  void try_match(int from, int to) {
    if (finished(from) || finished(to)) return;
    State& sender = state(from);
    State& receiver = state(to);
    if (!sender.sends || !receiver.receives || step_of(from).to != to || step_of(to).from != from)
      return;
    sender.sends = receiver.receives = false;
    transfer(from, step_of(from), to, step_of(to));
    for (const int rank : {from, to})
      if (!state(rank).sends && !state(rank).receives) ready_.push_back(rank);
  }

  void transfer(int from, const Step& out, int to, const Step& in) {
    if (out.count != in.count_in) {
      fail(to, "receives ", in.count_in, " slots from rank ", from, ", whose step ",
           state(from).step, " sends ", out.count);
    } else if (out.count > 0 &&
               out.source % plan_.slots_per_block != in.target % plan_.slots_per_block) {
      fail(to, "receives into ", describe_slot(plan_, in.target), " what rank ", from, " step ",
           state(from).step, " sends from ", describe_slot(plan_, out.source),
           ", another position in its block");
    }
    std::vector<Content>& arrived = state(to).arrived;
    arrived.clear();
    for (int i = 0; i < std::min(out.count, in.count_in); ++i) {
      expect_content(from, "sends", out.source + i);
      arrived.push_back(content(from, out.source + i));
    }
    state(to).heard = state(from).known;
  }

  void take_arrived(int rank, const Step& step) {
    State& self = state(rank);
    if (step.from < 0) return;
    for (std::size_t i = 0; i < self.arrived.size(); ++i) {
      const int slot = step.target + static_cast<int>(i);
      Content& target = content(rank, slot);
      if (step.receive == Step::Receive::reduce) {
        expect_content(rank, "reduces into", slot);
        target = target + self.arrived[i];
      } else {
        target = self.arrived[i];
      }
    }
    for (std::size_t i = 0; i < self.known.size(); ++i) self.known[i] |= self.heard[i];
  }

  void expect_content(int rank, std::string_view what, int slot) {
    if (content(rank, slot).num_contributions == 0)
      fail(rank, what, ' ', describe_slot(plan_, slot), ", which holds nothing");
  }

  /// The rank that side `sending` of the current step of `rank` waits for; -1: none.
  [[nodiscard]] int awaited(int rank, bool sending) const {
    if (finished(rank)) return -1;
    if (sending) return state(rank).sends ? step_of(rank).to : -1;
    return state(rank).receives ? step_of(rank).from : -1;
  }

  /// False if `peer` has no step left that would meet this side of the rank's current one.
  [[nodiscard]] bool will_meet(int rank, int peer, bool sending) const {
    const auto steps = plan_.steps_of(peer);
    for (std::size_t i = state(peer).step; i < steps.size(); ++i) {
      if (steps[i].kind != Step::Kind::exchange) continue;
      const bool current = i == state(peer).step && state(peer).entered;
      if (sending && steps[i].from == rank && (!current || state(peer).receives)) return true;
      if (!sending && steps[i].to == rank && (!current || state(peer).sends)) return true;
    }
    return false;
  }

  bool explain_stuck() {
    const std::size_t before = problems_.size();
    int first_stuck = -1;
    for (int rank = 0; rank < plan_.num_ranks && problems_.size() < max_problems; ++rank) {
      if (finished(rank)) continue;
      if (first_stuck < 0) first_stuck = rank;
      for (const bool sending : {true, false}) {
        const int peer = awaited(rank, sending);
        if (peer < 0 || will_meet(rank, peer, sending)) continue;
        fail(rank, sending ? "sends to rank " : "receives from rank ", peer, ", which ",
             sending ? "receives" : "sends", " nothing more", sending ? " from it" : " to it");
      }
    }
    if (first_stuck >= 0 && problems_.size() == before) explain_cycle(first_stuck);
    return first_stuck < 0;
  }

  /// Everyone stuck waits for somebody stuck: following that leads into a cycle.
  void explain_cycle(int rank) {
    std::vector<int> visited;
    while (std::ranges::find(visited, rank) == visited.end()) {
      visited.push_back(rank);
      const int peer = awaited(rank, true);
      rank = peer >= 0 ? peer : awaited(rank, false);
    }
    std::string text = "deadlock:";
    for (auto at = std::ranges::find(visited, rank); at != visited.end(); ++at) {
      const bool sending = awaited(*at, true) >= 0;
      text += message(" rank ", *at, " step ", state(*at).step,
                      sending ? " sends to rank " : " receives from rank ",
                      sending ? step_of(*at).to : step_of(*at).from, ',');
    }
    problems_.push_back(text + " which closes the cycle");
  }

  const Plan& plan_;
  std::vector<std::string>& problems_;
  std::size_t num_slots_;
  std::vector<Content> contents_;  ///< [rank][slot]
  std::vector<State> ranks_;
  std::vector<int> ready_;
};

/// Compares what the run left with what the collective says.
class Outcome {
 public:
  Outcome(const Plan& plan, const Run& run, std::vector<std::string>& problems)
      : plan_{plan}, run_{run}, problems_{problems} {
    if (!facts_of(plan.collective).has_reduction) return;
    sums_.resize(static_cast<std::size_t>(plan.num_input()));
    for (int rank = 0; rank < plan.num_ranks; ++rank)
      for (int slot = 0; slot < plan.num_input(); ++slot)
        sum(slot) = sum(slot) + contribution(rank, slot);
  }

  void check() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      if (plan_.collective == Collective::barrier) check_barrier(rank);
      for (int slot = 0; plan_.has_output(rank) && slot < plan_.num_output(); ++slot) {
        if (problems_.size() >= max_problems) return;
        check_slot(rank, slot);
      }
    }
  }

 private:
  struct Wanted {
    int rank, slot;  ///< rank -1: of all ranks
  };

  [[nodiscard]] Content& sum(int slot) { return sums_[static_cast<std::size_t>(slot)]; }

  [[nodiscard]] Wanted wanted(int rank, int slot) const {
    const int block = slot / plan_.slots_per_block, position = slot % plan_.slots_per_block;
    const int own = rank * plan_.slots_per_block;
    switch (plan_.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return {-1, slot};
      case Collective::reduce_scatter:
        return {-1, own + slot};
      case Collective::all_gather:
      case Collective::gather:
        return {block, position};
      case Collective::all_to_all:
      case Collective::all_to_all_v:
        return {block, own + position};
      case Collective::broadcast:
        return {plan_.root, slot};
      case Collective::scatter:
        return {plan_.root, own + slot};
      case Collective::send_recv:
        return {(rank + plan_.num_ranks - 1) % plan_.num_ranks, slot};
      case Collective::barrier:
        break;
    }
    return {rank, slot};
  }

  void check_barrier(int rank) {
    for (const int other : run_.unheard(rank))
      if (problems_.size() < max_problems)
        problems_.push_back(message("rank ", rank, " leaves without knowing of rank ", other));
  }

  void check_slot(int rank, int slot) {
    const Content& got = run_.output(rank, slot);
    const Wanted want = wanted(rank, slot);
    const Content expected = want.rank < 0 ? sum(want.slot) : contribution(want.rank, want.slot);
    if (got == expected) return;
    problems_.push_back(
        message("output slot ", slot, " of rank ", rank, ' ',
                want.rank < 0 ? explain_sum(got, want.slot) : explain_block(got, want)));
  }

  [[nodiscard]] std::string explain_sum(const Content& got, int slot) {
    if (got.num_contributions == 0) return "is never written";
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      const Content one = contribution(rank, slot);
      if (sum(slot) - got == one) return message("lacks rank ", rank, "'s contribution");
      if (got - sum(slot) == one) return message("has rank ", rank, "'s contribution twice");
    }
    for (int other = 0; other < plan_.num_input(); ++other)
      if (got == sum(other))
        return message("holds the sum of input slots ", other, " instead of ", slot);
    return message("holds ", got.num_contributions, " contributions, and not one of each of the ",
                   plan_.num_ranks, " ranks");
  }

  [[nodiscard]] std::string explain_block(const Content& got, const Wanted& want) const {
    const std::string expected = message("input slot ", want.slot, " of rank ", want.rank);
    if (got.num_contributions == 0) return message("is never written; it should hold ", expected);
    for (int rank = 0; rank < plan_.num_ranks; ++rank)
      for (int slot = 0; slot < plan_.num_input(); ++slot)
        if (got == contribution(rank, slot))
          return message("holds input slot ", slot, " of rank ", rank, " instead of ", expected);
    return message("holds a mixture instead of ", expected);
  }

  const Plan& plan_;
  const Run& run_;
  std::vector<std::string>& problems_;
  std::vector<Content> sums_;
};

}  // namespace

std::vector<std::string> validate(const Plan& plan) {
  std::vector<std::string> problems;
  StepRules{plan, problems}.check();
  if (!problems.empty()) return problems;
  Run run{plan, problems};
  if (run.run()) Outcome{plan, run, problems}.check();
  return problems;
}

}  // namespace shardmark
