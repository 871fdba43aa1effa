#include "layers/pipeline/lower.hpp"

#include "core/error.hpp"
#include "layers/pipeline/graph_internal.hpp"

#include <algorithm>
#include <tuple>

namespace shardmark::pipeline {
namespace {

/// A message and when it is ready. The order of (ready, source rank, act) is the global one.
struct Message {
  double ready;
  int source;
  Action send;
};

/// What `action` makes for a neighbouring stage on another rank, if anything.
std::optional<Action> send_of(const Schedule& schedule, const Action& action) {
  std::optional<Action> send;
  if (action.act == Act::F && action.stage + 1 < schedule.num_stages)
    send = {Act::send_F, action.stage, action.micro};
  if (makes_gradient(action.act) && action.stage > 0)
    send = {Act::send_B, action.stage, action.micro};
  if (!send) return {};
  const int from = schedule.rank_of(action.stage, action.micro);
  const int to = schedule.rank_of(other_end(*send).stage, action.micro);
  return from == to ? std::nullopt : send;
}

/// All messages in the global order.
std::vector<Message> messages_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<Message> messages;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i)
      for_each_action(schedule.ranks[r][i], [&](const Action& action) {
        if (const auto send = send_of(schedule, action))
          messages.push_back({timeline.steps[r][i].end, rank, *send});
      });
  }
  std::ranges::sort(messages, {}, [](const Message& m) {
    return std::tuple{m.ready, m.source, m.send.act};
  });
  return messages;
}

void merge_neighbours(std::vector<Step>& steps) {
  std::vector<Step> merged;
  for (const Step& step : steps) {
    const Act act = step.action.act;
    if (!is_compute(act) && !merged.empty() && !merged.back().with) {
      Step& before = merged.back();
      const Act act_before = before.action.act;
      if ((is_send(act) && is_receive(act_before)) || (is_receive(act) && is_send(act_before))) {
        before.with = step.action;
        if (is_send(act)) std::swap(before.action, *before.with);
        continue;
      }
    }
    merged.push_back(step);
  }
  steps = std::move(merged);
}

}  // namespace

Schedule split_backward(const Schedule& schedule) {
  SHARDMARK_CHECK(schedule.lowering == Lowering::none, "a lowered schedule cannot be split");
  Schedule split = schedule;
  for (auto& steps : split.ranks) {
    std::vector<Step> after;
    const auto as_input = [](Action& action) {
      const bool whole = action.act == Act::B;
      if (whole) action.act = Act::I;
      return whole;
    };
    for (Step step : steps) {
      std::vector<Action> weights;
      for (Action* action : {&step.action, step.with ? &*step.with : nullptr})
        if (action != nullptr && as_input(*action))
          weights.push_back({Act::W, action->stage, action->micro});
      after.push_back(step);
      for (const Action& weight : weights) after.push_back({weight, {}});
    }
    steps = std::move(after);
  }
  return split;
}

Schedule lower(const Schedule& schedule, Lowering policy) {
  SHARDMARK_CHECK(schedule.lowering == Lowering::none, "the schedule is lowered already");
  SHARDMARK_CHECK(policy != Lowering::none, "lowering needs a policy: split or merged");
  const Timeline timeline = replay(schedule);
  const auto n = schedule.ranks.size();
  struct Posted {
    double time;
    Action action;
  };
  std::vector<std::vector<Posted>> posted(n);
  for (const Message& m : messages_of(schedule, timeline)) {
    const Action receive = other_end(m.send);
    const auto target = static_cast<std::size_t>(schedule.rank_of(receive.stage, receive.micro));
    posted[static_cast<std::size_t>(m.source)].push_back({m.ready, m.send});
    posted[target].push_back({m.ready, receive});
  }
  Schedule lowered = schedule;
  lowered.lowering = policy;
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<Step>& steps = lowered.ranks[r];
    steps.clear();
    auto next = posted[r].begin();
    const auto post_until = [&](double time) {
      for (; next != posted[r].end() && next->time <= time; ++next)
        steps.push_back({next->action, {}});
    };
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      post_until(timeline.steps[r][i].start);
      steps.push_back(schedule.ranks[r][i]);
    }
    post_until(timeline.window);
    if (policy == Lowering::merged) merge_neighbours(steps);
  }
  return lowered;
}

}  // namespace shardmark::pipeline
