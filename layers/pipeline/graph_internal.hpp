#pragma once

// Which step waits for which: what validation, replay and lowering share.

#include "layers/pipeline/replay.hpp"
#include "layers/pipeline/schedule.hpp"

#include <compare>
#include <vector>

namespace shardmark::pipeline {

/// Where a step stands.
struct Place {
  int rank{-1}, step{-1};
  [[nodiscard]] bool exists() const { return rank >= 0; }
  auto operator<=>(const Place&) const = default;
};

/// Finds actions; of one that is there twice the first.
class ActionTable {
 public:
  /// Actions out of range are left out.
  explicit ActionTable(const Schedule& schedule);
  [[nodiscard]] bool in_range(const Action& action) const;
  [[nodiscard]] Place find(const Action& action) const;
  /// B or I, whichever there is.
  [[nodiscard]] Action gradient_of(int stage, int micro) const;
  /// What must be done before a compute action: its own forward or input gradient, and what the
  /// stage next to it makes. Stages that do not exist need nothing.
  [[nodiscard]] std::vector<Action> inputs_of(const Action& action) const;

 private:
  [[nodiscard]] std::size_t index(const Action& action) const;
  int num_stages_, num_micro_;
  std::vector<Place> places_;
};

/// The message that brings `input` (F, B or I) to the stage that needs it, as its receive.
[[nodiscard]] Action receive_of(const Action& input);

/// A node for the start and one for the end of each step, one for each message; an edge where one
/// waits for another. Steps of a lane run in order. Sends are rendezvous: both ends of a message
/// start it together.
class Graph {
 public:
  /// The schedule's actions must be complete and on their ranks.
  Graph(const Schedule& schedule, const Durations& durations);
  /// Earliest times; false if some steps never start.
  bool run();
  [[nodiscard]] Span span(Place place) const;
  /// After `run` was false: steps each of which waits for the next, and the last for the first;
  /// begins with the lowest rank's first one.
  [[nodiscard]] std::vector<Place> cycle() const;

 private:
  struct Edge {
    int from, to;
    double delay;
  };

  [[nodiscard]] int start_of(Place place) const;
  [[nodiscard]] int end_of(Place place) const { return start_of(place) + 1; }
  void add_lanes(const Schedule& schedule, const Durations& durations);
  void add_inputs(const Schedule& schedule, const ActionTable& table, Place place,
                  const Action& action, double communication);
  void add_message(const Schedule& schedule, const ActionTable& table, Place place,
                   const Action& action, double communication);

  std::vector<int> first_;  ///< [rank] steps before its own
  std::vector<Edge> edges_;
  int num_steps_{0}, num_nodes_{0};
  std::vector<double> times_;
  std::vector<int> waits_;  ///< [node] predecessors that are not done
};

}  // namespace shardmark::pipeline
