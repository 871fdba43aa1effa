#pragma once

// Runs a schedule in the simplest way there is, to have something to compare the validator with: it
// tries every lane's next step until nothing moves.

#include "layers/pipeline/schedule.hpp"

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace shardmark::pipeline {

/// Every action of the right schedule is there once, on its rank; only the order may be wrong.
class SimpleRun {
 public:
  explicit SimpleRun(const Schedule& schedule) : schedule_{schedule} {
    for (int rank = 0; rank < schedule.num_ranks(); ++rank)
      for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)]) {
        const Lane lane = lane_of(step, schedule.lowering);
        lanes_[{rank, lane}].push_back(&step);
        for_each_action(step, [&](const Action& a) { present_.insert(a); });
      }
  }

  /// True if it runs to its end and every message brings what was asked for.
  bool ends() {
    if (!listed_in_order() || !same_order_on_both_ends()) return false;
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& [key, steps] : lanes_) moved = advance(steps) || moved;
    }
    for (const auto& [key, steps] : lanes_)
      if (!steps.empty()) return false;
    return true;
  }

 private:
  using Steps = std::vector<const Step*>;

  [[nodiscard]] Action gradient(int stage, int micro) const {
    const Action whole{Act::B, stage, micro};
    return present_.contains(whole) ? whole : Action{Act::I, stage, micro};
  }

  /// What must be done on this rank before the action.
  [[nodiscard]] std::vector<Action> needs(const Action& a) const {
    const auto [act, stage, micro] = a;
    std::vector<Action> all;
    const auto from_neighbour = [&](const Action& made, Act receive) {
      const bool remote = schedule_.rank_of(made.stage, micro) != schedule_.rank_of(stage, micro) &&
                          schedule_.lowering != Lowering::none;
      all.push_back(remote ? Action{receive, stage, micro} : made);
    };
    if (act == Act::F && stage > 0) from_neighbour({Act::F, stage - 1, micro}, Act::recv_F);
    if (act == Act::B || act == Act::I) {
      all.push_back({Act::F, stage, micro});
      if (stage + 1 < schedule_.num_stages) from_neighbour(gradient(stage + 1, micro), Act::recv_B);
    }
    if (act == Act::W) all.push_back({Act::I, stage, micro});
    if (act == Act::send_F) all.push_back({Act::F, stage, micro});
    if (act == Act::send_B) all.push_back(gradient(stage, micro));
    return all;
  }

  /// A lane can only wait for something that was handed over before.
  bool listed_in_order() const {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      std::set<Action> listed;
      for (const Step& step : schedule_.ranks[static_cast<std::size_t>(rank)]) {
        bool right = true;
        for_each_action(step, [&](const Action& a) {
          for (const Action& need : needs(a))
            right = right &&
                    (schedule_.rank_of(need.stage, need.micro) != rank || listed.contains(need));
        });
        if (!right) return false;
        for_each_action(step, [&](const Action& a) { listed.insert(a); });
      }
    }
    return true;
  }

  bool same_order_on_both_ends() const {
    std::map<std::tuple<int, int, Lane>, std::array<std::vector<Action>, 2>> links;
    for (const auto& steps : schedule_.ranks)
      for (const Step& step : steps)
        for_each_action(step, [&](const Action& a) {
          if (is_compute(a.act)) return;
          const Action send = is_send(a.act) ? a : other_end(a), receive = other_end(send);
          links[{schedule_.rank_of(send.stage, send.micro),
                 schedule_.rank_of(receive.stage, send.micro),
                 lane_of({send, {}}, schedule_.lowering)}][is_send(a.act) ? 0 : 1]
              .push_back(send);
        });
    for (const auto& [link, ends] : links)
      if (ends[0] != ends[1]) return false;
    return true;
  }

  /// Is `action` in the step that is next on its lane, with all it needs?
  [[nodiscard]] bool is_next(const Action& action) const {
    const auto lane = lanes_.find(
        {schedule_.rank_of(action.stage, action.micro), lane_of({action, {}}, schedule_.lowering)});
    if (lane == lanes_.end() || lane->second.empty()) return false;
    bool found = false, ready = true;
    for_each_action(*lane->second.front(), [&](const Action& a) {
      found = found || a == action;
      for (const Action& need : needs(a)) ready = ready && done_.contains(need);
    });
    return found && ready;
  }

  bool advance(Steps& steps) {
    if (steps.empty() || !is_next(steps.front()->action)) return false;
    bool moved = false, complete = true;
    for_each_action(*steps.front(), [&](const Action& a) {
      if (is_compute(a.act)) return;
      const Action send = is_send(a.act) ? a : other_end(a);
      if (is_next(other_end(a)) && sent_.insert(send).second) moved = true;
      complete = complete && sent_.contains(send);
    });
    if (!complete) return moved;
    for_each_action(*steps.front(), [&](const Action& a) { done_.insert(a); });
    steps.erase(steps.begin());
    return true;
  }

  const Schedule& schedule_;
  std::map<std::pair<int, Lane>, Steps> lanes_;
  std::set<Action> present_, sent_, done_;
};

}  // namespace shardmark::pipeline
