// Buffers: a first-in, first-out list of free ones per stage and kind. An action that fills a
// buffer takes it, the last one that looks at it gives it back. A receive leaves one free: if it
// took the buffer that was in use a moment ago, no message could arrive during a computation.
//
// Fences: each event has a vector clock, the latest event of every lane that is over when it is
// (as in core/record/races.cpp). A lane waits for an event only if its own clock does not have it
// yet, and none of the other events it waits for brings it along.

#include "layers/pipeline/rank_plan.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>

namespace shardmark::pipeline {
namespace {

using Clock = std::array<int, num_lanes>;

/// Buffers of one kind of one stage.
class Pool {
 public:
  /// The buffer that is free for longest, or a new one unless that leaves `spare` free ones.
  int take(std::size_t spare = 0) {
    if (free_.size() <= spare) {
      freed_by_.push_back(0);
      return size() - 1;
    }
    const int buffer = free_.front();
    free_.erase(free_.begin());
    return buffer;
  }
  void give_back(int buffer, int event) {
    freed_by_[static_cast<std::size_t>(buffer)] = event;
    free_.push_back(buffer);
  }
  /// The event after which nobody uses what was in the buffer before.
  [[nodiscard]] int freed_by(int buffer) const {
    return freed_by_[static_cast<std::size_t>(buffer)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(freed_by_.size()); }

 private:
  std::vector<int> freed_by_, free_;
};

/// Events that sent the result and the input gradient in a state, of its latest micro-batch.
struct Sent {
  int result{0}, gradient{0};
};

struct StageBuffers {
  Pool x, states, dy;
  std::vector<Sent> sent;  ///< [state]
};

/// A micro-batch in a stage.
struct InFlight {
  Held held;
  int received_x{0}, received_dy{0}, forward{0}, gradient{0};  ///< events
  int num_users{0};  ///< actions that will still look at the state
};

class Planner {
 public:
  Planner(const Schedule& schedule, int rank)
      : schedule_{schedule},
        rank_{rank},
        stages_(static_cast<std::size_t>(schedule.num_stages)),
        in_flight_(stages_.size() * static_cast<std::size_t>(schedule.num_micro)) {
    for (Clock& clock : clocks_) clock.fill(-1);
    clock_of(Lane::compute)[index_of(Lane::compute)] = 0;
    events_.push_back({Lane::compute, clock_of(Lane::compute)});
  }

  RankPlan plan() {
    for (const Step& step : schedule_.ranks[static_cast<std::size_t>(rank_)]) {
      if (is_compute(step.action.act))
        for_each_action(step, [&](const Action& action) { add({action, {}}); });
      else
        add(step);
    }
    needs_.clear();
    for (std::size_t lane = 0; lane < num_lanes; ++lane) need(clocks_[lane][lane]);
    plan_.awaits_at_end = wait(Lane::compute);
    for (const StageBuffers& stage : stages_)
      plan_.num_buffers.push_back({stage.x.size(), stage.states.size(), stage.dy.size()});
    return std::move(plan_);
  }

 private:
  struct Event {
    Lane lane;
    Clock clock;
  };

  void add(const Step& step) {
    const int event = static_cast<int>(events_.size());
    Instruction instruction{.step = step, .lane = lane_of(step, schedule_.lowering)};
    needs_.clear();
    for_each_action(step, [&](const Action& action) { begin(action, instruction.before); });
    instruction.held = at(step.action).held;
    if (step.with) instruction.with = at(*step.with).held;
    instruction.awaits = wait(instruction.lane);
    clock_of(instruction.lane)[index_of(instruction.lane)] = event;
    events_.push_back({instruction.lane, clock_of(instruction.lane)});
    plan_.instructions.push_back(std::move(instruction));
    for_each_action(step, [&](const Action& action) { end(action, event); });
  }

  /// Takes the buffers that the action fills and notes what has to be over before it.
  void begin(const Action& action, Held& before) {
    InFlight& mine = at(action);
    StageBuffers& stage = stage_of(action);
    switch (action.act) {
      case Act::recv_F:
        take_x(action);
        break;
      case Act::F:
        if (is_here(action.stage - 1, action.micro)) {
          before = at({Act::F, action.stage - 1, action.micro}).held;
          take_x(action);
        }
        need(mine.received_x);
        mine.held.state = stage.states.take();
        stage.sent.resize(static_cast<std::size_t>(stage.states.size()));
        need(sent_of(action).result);
        mine.num_users = 1 + (leaves(action.stage + 1, action.micro) ? 1 : 0) +
                         (leaves(action.stage - 1, action.micro) ? 1 : 0);
        break;
      case Act::recv_B:
        take_dy(action);
        break;
      case Act::B:
      case Act::I:
        need(mine.received_dy);
        need(sent_of(action).gradient);
        if (is_here(action.stage - 1, action.micro)) {
          const Action behind{Act::I, action.stage - 1, action.micro};
          take_dy(behind);
          before = at(behind).held;
        }
        break;
      case Act::W:
        break;
      case Act::send_F:
        need(mine.forward);
        break;
      case Act::send_B:
        need(mine.gradient);
        break;
    }
  }

  /// Gives back the buffers that nobody looks at after the action.
  void end(const Action& action, int event) {
    InFlight& mine = at(action);
    StageBuffers& stage = stage_of(action);
    if (action.act == Act::recv_F) mine.received_x = event;
    if (action.act == Act::recv_B) mine.received_dy = event;
    if (action.act == Act::F) mine.forward = event;
    if (makes_gradient(action.act)) mine.gradient = event;
    if (action.act == Act::send_F) sent_of(action).result = event;
    if (action.act == Act::send_B) sent_of(action).gradient = event;
    const bool is_last = action.act == Act::B || action.act == Act::W;
    if (makes_gradient(action.act) && mine.held.x >= 0) stage.x.give_back(mine.held.x, event);
    if (is_last && mine.held.dy >= 0) stage.dy.give_back(mine.held.dy, event);
    if ((is_last || is_send(action.act)) && --mine.num_users == 0)
      stage.states.give_back(mine.held.state, event);
  }

  void take_x(const Action& action) {
    Pool& pool = stage_of(action).x;
    need(pool.freed_by(at(action).held.x = pool.take(action.act == Act::recv_F ? 1 : 0)));
  }
  void take_dy(const Action& action) {
    Pool& pool = stage_of(action).dy;
    need(pool.freed_by(at(action).held.dy = pool.take(action.act == Act::recv_B ? 1 : 0)));
  }
  void need(int event) {
    if (event >= 0) needs_.push_back(event);
  }

  /// Makes `lane` wait for what it needs, as far as it must.
  std::vector<int> wait(Lane lane) {
    std::ranges::sort(needs_);
    needs_.erase(std::unique(needs_.begin(), needs_.end()), needs_.end());
    const auto knows = [&](const Clock& clock, int event) {
      return clock[index_of(events_[static_cast<std::size_t>(event)].lane)] >= event;
    };
    std::vector<int> awaits;
    for (const int event : needs_) {
      const bool is_brought = std::ranges::any_of(needs_, [&](int other) {
        return other != event && knows(events_[static_cast<std::size_t>(other)].clock, event);
      });
      if (!is_brought && !knows(clock_of(lane), event)) awaits.push_back(event);
    }
    for (const int event : awaits) {
      const Clock& brought = events_[static_cast<std::size_t>(event)].clock;
      std::ranges::transform(clock_of(lane), brought, clock_of(lane).begin(),
                             [](int a, int b) { return std::max(a, b); });
      (event == 0 ? plan_.signals_start
                  : plan_.instructions[static_cast<std::size_t>(event) - 1].signals) = true;
    }
    return awaits;
  }

  [[nodiscard]] bool is_here(int stage, int micro) const {
    return stage >= 0 && schedule_.rank_of(stage, micro) == rank_;
  }
  /// Whether the micro-batch has to leave this rank to get to that stage, if there is one.
  [[nodiscard]] bool leaves(int stage, int micro) const {
    return stage >= 0 && stage < schedule_.num_stages && !is_here(stage, micro);
  }
  [[nodiscard]] InFlight& at(const Action& action) {
    const auto micro = static_cast<std::size_t>(action.micro);
    return in_flight_[static_cast<std::size_t>(action.stage) *
                          static_cast<std::size_t>(schedule_.num_micro) +
                      micro];
  }
  [[nodiscard]] StageBuffers& stage_of(const Action& action) {
    return stages_[static_cast<std::size_t>(action.stage)];
  }
  [[nodiscard]] Sent& sent_of(const Action& action) {
    return stage_of(action).sent[static_cast<std::size_t>(at(action).held.state)];
  }
  [[nodiscard]] Clock& clock_of(Lane lane) { return clocks_[index_of(lane)]; }

  const Schedule& schedule_;
  int rank_;
  std::vector<StageBuffers> stages_;
  std::vector<InFlight> in_flight_;  ///< [stage][micro]
  std::array<Clock, num_lanes> clocks_{};
  std::vector<Event> events_;
  std::vector<int> needs_;
  RankPlan plan_;
};

}  // namespace

RankPlan plan_rank(const Schedule& schedule, int rank) {
  SHARDMARK_CHECK(schedule.lowering != Lowering::none || schedule.num_ranks() == 1,
                  "a schedule for ", schedule.num_ranks(), " ranks must be lowered first");
  return Planner{schedule, rank}.plan();
}

}  // namespace shardmark::pipeline
