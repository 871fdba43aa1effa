#include "layers/pipeline/validate.hpp"

#include "core/error.hpp"
#include "layers/pipeline/graph_internal.hpp"

#include <algorithm>
#include <tuple>

namespace shardmark::pipeline {
namespace {

constexpr std::size_t max_problems = 20;

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_{schedule} {}

  std::vector<Problem> run() {
    check_header();
    if (!problems_.empty()) return problems_;
    table_.emplace(schedule_);
    for_each_step([&](Place place, const Step& step) { check_step(place, step); });
    check_complete();
    if (!problems_.empty()) return problems_;
    for_each_step([&](Place place, const Step& step) {
      for_each_action(step, [&](const Action& action) { check_order(place, action); });
    });
    if (!problems_.empty()) return problems_;
    check_message_order();
    if (!problems_.empty()) return problems_;
    Graph graph{schedule_, {}};
    if (!graph.run()) explain(graph.cycle());
    return problems_;
  }

 private:
  template <class... Parts>
  void fail(Place place, const Parts&... parts) {
    if (problems_.size() < max_problems)
      problems_.push_back({place.rank, place.step, message(parts...)});
  }

  template <class Visit>
  void for_each_step(Visit&& visit) {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      Place place{rank, 0};
      for (const Step& step : schedule_.ranks[static_cast<std::size_t>(rank)]) {
        visit(place, step);
        ++place.step;
      }
    }
  }

  void check_header() {
    const auto stages = static_cast<std::size_t>(std::max(schedule_.num_stages, 0));
    const auto outside = [&](int rank) { return rank < 0 || rank >= schedule_.num_ranks(); };
    if (schedule_.num_stages < 1 || schedule_.num_micro < 1)
      fail({0, -1}, "a schedule needs a stage and a micro-batch");
    else if (schedule_.rank_of_stage.size() != stages ||
             (schedule_.is_two_way() && schedule_.rank_of_second_copy.size() != stages))
      fail({0, -1}, "there are ", stages, " stages, and ranks for ",
           schedule_.rank_of_stage.size());
    else if (std::ranges::any_of(schedule_.rank_of_stage, outside) ||
             std::ranges::any_of(schedule_.rank_of_second_copy, outside))
      fail({0, -1}, "a stage lives on a rank that does not exist");
    else
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
        if (!holds_a_stage(rank)) fail({rank, -1}, "there is no stage on this rank");
  }

  [[nodiscard]] bool holds_a_stage(int rank) const {
    const auto on = [&](const std::vector<int>& homes) {
      return std::ranges::find(homes, rank) != homes.end();
    };
    return on(schedule_.rank_of_stage) || on(schedule_.rank_of_second_copy);
  }

  [[nodiscard]] int home(const Action& action) const {
    return schedule_.rank_of(action.stage, action.micro);
  }

  void check_step(Place place, const Step& step) {
    if (step.with) {
      const Act first = step.action.act, second = step.with->act;
      const bool overlaps = first == Act::F && makes_gradient(second);
      const bool merges =
          schedule_.lowering == Lowering::merged && is_send(first) && is_receive(second);
      if (!overlaps && !merges)
        fail(place, to_text(step), " joins what cannot run as one: a forward with a backward can",
             schedule_.lowering == Lowering::merged ? ", a send with a receive" : "");
    }
    // Of two equal actions in one step the table has only the step.
    if (step.with && *step.with == step.action) fail(place, to_text(step), " twice in one step");
    for_each_action(step, [&](const Action& action) { check_action(place, action); });
  }

  void check_action(Place place, const Action& action) {
    if (!table_->in_range(action)) {
      fail(place, to_text(action), " is out of range: there are stages 0 to ",
           schedule_.num_stages - 1, " and micro-batches 0 to ", schedule_.num_micro - 1);
      return;
    }
    if (home(action) != place.rank)
      fail(place, to_text(action), " is on the wrong rank: stage ", action.stage,
           schedule_.is_two_way() ? message(" of micro-batch ", action.micro) : std::string{},
           " lives on rank ", home(action));
    const Place first = table_->find(action);
    if (first != place)
      fail(place, to_text(action), " is there twice: also at rank ", first.rank, " step ",
           first.step);
    if (!is_compute(action.act)) check_message(place, action);
  }

  void check_message(Place place, const Action& action) {
    if (schedule_.lowering == Lowering::none) {
      fail(place, to_text(action), " is a message in a schedule that is not lowered");
      return;
    }
    const Action other = other_end(action);
    if (!table_->in_range(other))
      fail(place, to_text(action), " has no stage at its other end");
    else if (home(other) == home(action))
      fail(place, to_text(action), ": stage ", other.stage, " is on the same rank");
  }

  [[nodiscard]] bool has(Act act, int stage, int micro) const {
    return table_->find({act, stage, micro}).exists();
  }

  void check_complete() {
    for (int stage = 0; stage < schedule_.num_stages; ++stage)
      for (int micro = 0; micro < schedule_.num_micro; ++micro) {
        if (problems_.size() >= max_problems) return;
        check_complete(stage, micro);
      }
  }

  void check_complete(int stage, int micro) {
    const Place nowhere{schedule_.rank_of(stage, micro), -1};
    const auto text = [&](Act act) { return to_text(Action{act, stage, micro}); };
    const bool whole = has(Act::B, stage, micro);
    const bool input = has(Act::I, stage, micro), weight = has(Act::W, stage, micro);
    if (!has(Act::F, stage, micro)) fail(nowhere, text(Act::F), " is missing");
    if (whole && (input || weight)) {
      const Act part = input ? Act::I : Act::W;
      fail(table_->find({part, stage, micro}), text(part), " is part of ", text(Act::B),
           ", which is there as well");
    } else if (!whole && !input && !weight) {
      fail(nowhere, text(Act::B), ", or ", text(Act::I), " and ", text(Act::W), ", is missing");
    } else if (!whole && input != weight) {
      fail(nowhere, text(input ? Act::W : Act::I), " is missing");
    }
    if (schedule_.lowering == Lowering::none) return;
    if (stage + 1 < schedule_.num_stages) check_pair({Act::send_F, stage, micro});
    if (stage > 0) check_pair({Act::send_B, stage, micro});
  }

  void check_pair(const Action& send) {
    const Action receive = other_end(send);
    if (home(send) == home(receive)) return;
    for (const Action& end : {send, receive})
      if (!table_->find(end).exists()) fail({home(end), -1}, to_text(end), " is missing");
  }

  /// Rules of one rank's order, which a cycle would explain less well.
  void check_order(Place place, const Action& action) {
    const auto after = [&](const Action& source, std::string_view what) {
      const Place found = table_->find(source);
      if (found.rank != place.rank || found.step < place.step) return;
      fail(place, to_text(action),
           found.step == place.step ? " runs together with " : " comes before ", what, ' ',
           to_text(source), found.step == place.step ? "" : message(" at step ", found.step));
    };
    if (is_send(action.act)) {
      after(action.act == Act::send_F ? Action{Act::F, action.stage, action.micro}
                                      : table_->gradient_of(action.stage, action.micro),
            "what it sends,");
    }
    if (!is_compute(action.act)) return;
    for (const Action& input : table_->inputs_of(action)) {
      const bool own = input.stage == action.stage;
      after(input, own && input.act == Act::F ? "its forward"
                   : own                      ? "its input gradient"
                                              : "its input");
      if (!own && schedule_.lowering != Lowering::none && home(input) != place.rank)
        after(receive_of(input), "its input arrives with");
    }
  }

  /// Messages have no names: the k-th send of one rank to another meets the k-th receive there.
  void check_message_order() {
    struct End {
      int source, target;
      Lane lane;
      Action send;
      Place place;
    };
    std::vector<End> sends, receives;
    for_each_step([&](Place place, const Step& step) {
      for_each_action(step, [&](const Action& action) {
        if (is_compute(action.act)) return;
        const Action send = is_send(action.act) ? action : other_end(action);
        (is_send(action.act) ? sends : receives)
            .push_back({home(send), home(other_end(send)), lane_of({send, {}}, schedule_.lowering),
                        send, place});
      });
    });
    const auto by_link = [](const End& end) {
      return std::tuple{end.source, end.target, end.lane};
    };
    std::ranges::stable_sort(sends, {}, by_link);
    std::ranges::stable_sort(receives, {}, by_link);
    for (std::size_t i = 0; i < sends.size(); ++i)
      if (sends[i].send != receives[i].send) {
        fail(receives[i].place, to_text(other_end(receives[i].send)), " would receive ",
             to_text(sends[i].send), ", which rank ", sends[i].source, " sends first, at step ",
             sends[i].place.step);
        return;
      }
  }

  void explain(const std::vector<Place>& cycle) {
    const auto step_text = [&](Place place) {
      const auto& steps = schedule_.ranks[static_cast<std::size_t>(place.rank)];
      return message("rank ", place.rank, " step ", place.step, " (",
                     to_text(steps[static_cast<std::size_t>(place.step)]), ')');
    };
    std::string text = "deadlock: " + step_text(cycle.front());
    std::string_view joint = " waits for ";
    for (std::size_t i = 1; i < cycle.size(); ++i) {
      // Of a stretch on one rank the first and the last step say it all.
      const bool inside = i + 1 < cycle.size() && cycle[i - 1].rank == cycle[i].rank &&
                          cycle[i + 1].rank == cycle[i].rank;
      if (inside) continue;
      text += message(joint, step_text(cycle[i]));
      joint = ", that for ";
    }
    fail(cycle.front(), text, ", and that for the first again");
  }

  const Schedule& schedule_;
  std::optional<ActionTable> table_;
  std::vector<Problem> problems_;
};

}  // namespace

std::string to_text(const Problem& problem) {
  if (problem.step < 0) return message("rank ", problem.rank, ": ", problem.text);
  return message("rank ", problem.rank, " step ", problem.step, ": ", problem.text);
}

std::vector<Problem> validate(const Schedule& schedule) { return Validator{schedule}.run(); }

}  // namespace shardmark::pipeline
