// Puts weight gradients into a schedule: an event simulation in which ranks follow their order of
// forwards and input gradients, and compute a weight gradient where they would wait, where memory
// is full, and at the end. Source: the heuristic of zero bubble, arXiv 2401.10241 section 3.1.

#include "core/error.hpp"
#include "layers/pipeline/generators_internal.hpp"

#include <functional>
#include <queue>

namespace shardmark::pipeline::generators {
namespace {

constexpr double unknown = -1;

class Filling {
 public:
  Filling(const Schedule& order, const Durations& durations, int memory_limit, WeightRule rule)
      : order_{order},
        durations_{durations},
        memory_limit_{memory_limit},
        rule_{rule},
        states_(order.ranks.size()),
        forward_arrives_(size(), unknown),
        gradient_arrives_(size(), unknown),
        filled_{order} {
    for (auto& steps : filled_.ranks) steps.clear();
    for (int m = 0; m < order.num_micro; ++m) {
      arrival({Act::F, 0, m}) = 0;
      arrival({Act::I, order.num_stages - 1, m}) = 0;
    }
  }

  Schedule run() {
    for (int rank = 0; rank < order_.num_ranks(); ++rank) events_.push({0, rank});
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (state(rank).free_at > now) continue;
      if (const auto action = choose(rank, now)) perform(rank, now, *action);
    }
    for (int rank = 0; rank < order_.num_ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      SHARDMARK_CHECK(2 * filled_.ranks[r].size() == 3 * order_.ranks[r].size(), "rank ", rank,
                      " of ", order_.name, " stops before its end");
    }
    return std::move(filled_);
  }

 private:
  struct State {
    std::size_t next{0};      ///< of the order
    std::size_t num_done{0};  ///< weight gradients
    std::vector<Action> weights;
    int in_flight{0};
    double free_at{0};
  };
  struct Event {
    double time;
    int rank;
    auto operator<=>(const Event&) const = default;
  };

  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(order_.num_stages) * static_cast<std::size_t>(order_.num_micro);
  }
  [[nodiscard]] State& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
  /// When the input of F or I comes from the next stage.
  [[nodiscard]] double& arrival(const Action& action) {
    const auto i =
        static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(order_.num_micro) +
        static_cast<std::size_t>(action.micro);
    return (action.act == Act::F ? forward_arrives_ : gradient_arrives_)[i];
  }

  std::optional<Action> choose(int rank, double now) {
    State& self = state(rank);
    const auto& steps = order_.ranks[static_cast<std::size_t>(rank)];
    std::optional<Action> weight;
    if (self.num_done < self.weights.size()) weight = self.weights[self.num_done];
    if (self.next == steps.size()) return weight;
    const Action action = steps[self.next].action;
    const double arrives = arrival(action);
    if (arrives != unknown && arrives <= now) {
      const bool full = action.act == Act::F && self.in_flight >= memory_limit_;
      return full ? weight : action;
    }
    if (weight && arrives != unknown && rule_ == WeightRule::only_in_gaps &&
        now + durations_.of(weight->stage).backward_weight > arrives)
      return {};
    return weight;
  }

  void perform(int rank, double now, const Action& action) {
    State& self = state(rank);
    const Step step{action, {}};
    filled_.ranks[static_cast<std::size_t>(rank)].push_back(step);
    self.free_at = now + duration_of(step, durations_);
    events_.push({self.free_at, rank});
    if (action.act == Act::W) {
      ++self.num_done;
      --self.in_flight;
      return;
    }
    ++self.next;
    if (action.act == Act::F) ++self.in_flight;
    if (action.act == Act::I) self.weights.push_back({Act::W, action.stage, action.micro});
    const int stage = action.stage + (action.act == Act::F ? 1 : -1);
    if (stage < 0 || stage >= order_.num_stages) return;
    const int target = order_.rank_of(stage, action.micro);
    const double at = self.free_at + (target == rank ? 0 : durations_.communication);
    arrival({action.act, stage, action.micro}) = at;
    events_.push({at, target});
  }

  const Schedule& order_;
  const Durations& durations_;
  int memory_limit_;
  WeightRule rule_;
  std::vector<State> states_;
  std::vector<double> forward_arrives_, gradient_arrives_;  ///< [stage][micro]
  Schedule filled_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

int needed_memory(const Schedule& order) {
  int most = 0;
  for (const auto& steps : order.ranks) {
    int in_flight = 0;
    for (const Step& step : steps) {
      in_flight += step.action.act == Act::F ? 1 : -1;
      most = std::max(most, in_flight);
    }
  }
  return most;
}

Schedule fill_weights(const Schedule& order, const Durations& durations, int memory_limit,
                      WeightRule rule) {
  return Filling{order, durations, memory_limit, rule}.run();
}

}  // namespace shardmark::pipeline::generators
