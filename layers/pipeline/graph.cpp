#include "core/error.hpp"
#include "layers/pipeline/graph_internal.hpp"

#include <algorithm>
#include <array>

namespace shardmark::pipeline {

ActionTable::ActionTable(const Schedule& schedule)
    : num_stages_{schedule.num_stages},
      num_micro_{schedule.num_micro},
      places_(static_cast<std::size_t>(num_acts) * static_cast<std::size_t>(num_stages_) *
              static_cast<std::size_t>(num_micro_)) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    int step = 0;
    for (const Step& s : schedule.ranks[static_cast<std::size_t>(rank)]) {
      for_each_action(s, [&](const Action& action) {
        if (in_range(action) && !find(action).exists()) places_[index(action)] = {rank, step};
      });
      ++step;
    }
  }
}

bool ActionTable::in_range(const Action& action) const {
  return action.stage >= 0 && action.stage < num_stages_ && action.micro >= 0 &&
         action.micro < num_micro_;
}

std::size_t ActionTable::index(const Action& action) const {
  const auto row = static_cast<std::size_t>(action.act) * static_cast<std::size_t>(num_stages_) +
                   static_cast<std::size_t>(action.stage);
  return row * static_cast<std::size_t>(num_micro_) + static_cast<std::size_t>(action.micro);
}

Place ActionTable::find(const Action& action) const {
  return in_range(action) ? places_[index(action)] : Place{};
}

Action ActionTable::gradient_of(int stage, int micro) const {
  const Action whole{Act::B, stage, micro};
  return find(whole).exists() ? whole : Action{Act::I, stage, micro};
}

std::vector<Action> ActionTable::inputs_of(const Action& action) const {
  const auto [act, stage, micro] = action;
  if (act == Act::W) return {{Act::I, stage, micro}};
  std::vector<Action> inputs;
  if (act == Act::F && stage > 0) inputs.push_back({Act::F, stage - 1, micro});
  if (makes_gradient(act)) {
    inputs.push_back({Act::F, stage, micro});
    if (stage + 1 < num_stages_) inputs.push_back(gradient_of(stage + 1, micro));
  }
  return inputs;
}

Action receive_of(const Action& input) {
  if (input.act == Act::F) return {Act::recv_F, input.stage + 1, input.micro};
  return {Act::recv_B, input.stage - 1, input.micro};
}

Graph::Graph(const Schedule& schedule, const Durations& durations) {
  for (const auto& steps : schedule.ranks) {
    first_.push_back(num_steps_);
    num_steps_ += static_cast<int>(steps.size());
  }
  num_nodes_ = 2 * num_steps_;
  const ActionTable table{schedule};
  edges_.reserve(static_cast<std::size_t>(num_steps_) * 4);
  add_lanes(schedule, durations);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    Place place{rank, 0};
    for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)]) {
      for_each_action(step, [&](const Action& action) {
        if (is_compute(action.act))
          add_inputs(schedule, table, place, action, durations.communication);
        else
          add_message(schedule, table, place, action, durations.communication);
      });
      ++place.step;
    }
  }
}

int Graph::start_of(Place place) const {
  return 2 * (first_[static_cast<std::size_t>(place.rank)] + place.step);
}

Span Graph::span(Place place) const {
  return {times_[static_cast<std::size_t>(start_of(place))],
          times_[static_cast<std::size_t>(end_of(place))]};
}

void Graph::add_lanes(const Schedule& schedule, const Durations& durations) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::array<Place, num_lanes> last;
    Place place{rank, 0};
    for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)]) {
      Place& before = last[index_of(lane_of(step, schedule.lowering))];
      if (before.exists()) edges_.push_back({end_of(before), start_of(place), 0});
      edges_.push_back({start_of(place), end_of(place), duration_of(step, durations)});
      before = place;
      ++place.step;
    }
  }
}

void Graph::add_inputs(const Schedule& schedule, const ActionTable& table, Place place,
                       const Action& action, double communication) {
  for (const Action& input : table.inputs_of(action)) {
    const Place source = table.find(input);
    if (source.rank == place.rank) {
      edges_.push_back({end_of(source), start_of(place), 0});
    } else if (schedule.lowering == Lowering::none) {
      edges_.push_back({end_of(source), start_of(place), communication});
    } else {
      edges_.push_back({end_of(table.find(receive_of(input))), start_of(place), 0});
    }
  }
}

void Graph::add_message(const Schedule& schedule, const ActionTable& table, Place place,
                        const Action& action, double communication) {
  if (!is_send(action.act)) return;
  SHARDMARK_CHECK(schedule.lowering != Lowering::none, to_text(action), " in a compute schedule");
  const Action source = action.act == Act::send_F ? Action{Act::F, action.stage, action.micro}
                                                  : table.gradient_of(action.stage, action.micro);
  const Place other = table.find(other_end(action));
  const int node = num_nodes_++;
  edges_.push_back({end_of(table.find(source)), start_of(place), 0});
  for (const Place end : {place, other}) {
    edges_.push_back({start_of(end), node, 0});
    edges_.push_back({node, end_of(end), communication});
  }
}

bool Graph::run() {
  const auto n = static_cast<std::size_t>(num_nodes_);
  std::vector<std::size_t> first(n + 1, 0);
  for (const Edge& edge : edges_) ++first[static_cast<std::size_t>(edge.from) + 1];
  for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<std::size_t> next{first.begin(), first.end() - 1}, order(edges_.size());
  waits_.assign(n, 0);
  times_.assign(n, 0);
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    order[next[static_cast<std::size_t>(edges_[i].from)]++] = i;
    ++waits_[static_cast<std::size_t>(edges_[i].to)];
  }
  std::vector<std::size_t> ready;
  for (std::size_t node = 0; node < n; ++node)
    if (waits_[node] == 0) ready.push_back(node);
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::size_t node = ready.back();
    ready.pop_back();
    for (std::size_t i = first[node]; i < first[node + 1]; ++i) {
      const Edge& edge = edges_[order[i]];
      const auto to = static_cast<std::size_t>(edge.to);
      times_[to] = std::max(times_[to], times_[node] + edge.delay);
      if (--waits_[to] == 0) ready.push_back(to);
    }
  }
  return done == n;
}

std::vector<Place> Graph::cycle() const {
  // Every node that is stuck waits for one that is stuck: following that leads into a cycle.
  std::vector<int> before(static_cast<std::size_t>(num_nodes_), -1);
  int node = -1;
  for (const Edge& edge : edges_)
    if (waits_[static_cast<std::size_t>(edge.from)] > 0) {
      before[static_cast<std::size_t>(edge.to)] = edge.from;
      node = edge.from;
    }
  std::vector<bool> visited(static_cast<std::size_t>(num_nodes_), false);
  for (; !visited[static_cast<std::size_t>(node)]; node = before[static_cast<std::size_t>(node)])
    visited[static_cast<std::size_t>(node)] = true;
  std::vector<Place> places;
  const int closing = node;
  do {
    if (node < 2 * num_steps_) {
      const int step = node / 2;
      const auto after = std::ranges::upper_bound(first_, step);
      const int rank = static_cast<int>(after - first_.begin()) - 1;
      const Place place{rank, step - first_[static_cast<std::size_t>(rank)]};
      if (places.empty() || places.back() != place) places.push_back(place);
    }
    node = before[static_cast<std::size_t>(node)];
  } while (node != closing);
  if (places.size() > 1 && places.front() == places.back()) places.pop_back();
  std::ranges::rotate(places, std::ranges::min_element(places));
  return places;
}

}  // namespace shardmark::pipeline
