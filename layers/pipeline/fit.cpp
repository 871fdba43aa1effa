// Zero-bubble schedules for measured durations: candidates of every shape that fits the memory,
// each with its weight gradients filled in by both rules; the one that ends first wins.
//
// On a line the candidates differ in how many forwards a rank begins with: as in zb-h1, or as many
// as fit into the time until its first gradient can arrive, rounded down, up, and one more (arXiv
// 2401.10241 section 3.1), as far as memory allows. In a V they are all building blocks with equal
// lifetimes on all ranks (arXiv 2405.15362 section 3), zb-v's order, and one micro-batch at a time.

#include "core/error.hpp"
#include "layers/pipeline/generators_internal.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark::pipeline {
namespace {

using generators::BlockSteps;

std::vector<Schedule> line_orders(std::string_view name, const Request& request,
                                  const Durations& durations, int memory_limit) {
  const int p = request.ranks;
  std::vector<double> until_gradient(static_cast<std::size_t>(p), 0);
  for (int rank = p - 2; rank >= 0; --rank) {
    const StageTimes& next = durations.of(rank + 1);
    until_gradient[static_cast<std::size_t>(rank)] =
        until_gradient[static_cast<std::size_t>(rank) + 1] + next.forward + next.backward_input +
        2 * durations.communication;
  }
  std::vector<Schedule> orders;
  const auto add = [&](auto&& extra_forwards) {
    std::vector<int> forwards;
    for (int rank = 0; rank < p; ++rank)
      forwards.push_back(std::clamp(1 + static_cast<int>(extra_forwards(rank)), 1, memory_limit));
    // A rank that waits for a gradient must have fed the next rank all that one begins with.
    for (std::size_t rank = forwards.size() - 1; rank > 0; --rank)
      forwards[rank - 1] = std::max(forwards[rank - 1], forwards[rank]);
    orders.push_back(generators::one_f_one_i(name, request.micro, forwards));
  };
  const auto fitting = [&](int rank) {
    return std::min(until_gradient[static_cast<std::size_t>(rank)] / durations.of(rank).forward,
                    static_cast<double>(request.micro));
  };
  add([&](int rank) { return p - 1 - rank; });
  add([&](int rank) { return 2 * (p - 1 - rank); });
  add([&](int rank) { return std::floor(fitting(rank)); });
  add([&](int rank) { return std::ceil(fitting(rank)); });
  add([&](int rank) { return std::ceil(fitting(rank)) + (rank + 1 < p ? 1 : 0); });
  return orders;
}

std::vector<Schedule> v_orders(std::string_view name, const Request& request, int memory_limit) {
  const int p = request.ranks, m = request.micro;
  constexpr int most = 4;
  std::vector<Schedule> orders;
  const auto add = [&](std::optional<Schedule> order) {
    if (order && generators::needed_memory(*order) <= memory_limit)
      orders.push_back(std::move(*order));
  };
  // Equal lifetimes: what a rank's first chunk waits longer, its second waits less.
  for (int a = 1; a <= most; ++a)
    for (int b = 1; b <= most; ++b)
      for (int c = 1; c <= most; ++c)
        if (const int d = b + c - a; d >= 1 && d <= most)
          add(generators::repeat_block(name, p, m, BlockSteps{a, b, c, d}));
  add(generators::zb_v_order(name, p, m));
  if (orders.empty()) {
    Schedule one_by_one = generators::empty_v(name, p, m);
    for (int rank = 0; rank < p; ++rank)
      for (int micro = 0; micro < m; ++micro)
        for (const Act act : {Act::F, Act::I})
          for (const bool first : {act == Act::F, act != Act::F})
            one_by_one.ranks[static_cast<std::size_t>(rank)].push_back(
                {{act, first ? rank : 2 * p - 1 - rank, micro}, {}});
    add(std::move(one_by_one));
  }
  return orders;
}

void check_durations(const ScheduleFacts& facts, const Durations& durations, int num_stages) {
  const auto wrong = [](double time) { return !std::isfinite(time) || time <= 0; };
  if (durations.stages.size() != 1 &&
      durations.stages.size() != static_cast<std::size_t>(num_stages))
    throw InputError{message("schedule ", facts.name, ": durations of ", durations.stages.size(),
                             " stages; there are ", num_stages)};
  for (std::size_t stage = 0; stage < durations.stages.size(); ++stage) {
    const auto& [forward, input, weight, overlapped] = durations.stages[stage];
    for (const double time : {forward, input, weight})
      if (wrong(time))
        throw InputError{message("schedule ", facts.name, ": stage ", stage, " takes ", time,
                                 "; every duration must be positive")};
  }
  if (!std::isfinite(durations.communication) || durations.communication < 0)
    throw InputError{message("schedule ", facts.name, ": communication takes ",
                             durations.communication, "; it must be 0 or more")};
}

}  // namespace

Schedule fit(ScheduleKind kind, const Request& request, const Durations& durations,
             int memory_limit) {
  const ScheduleFacts& facts = facts_of(kind);
  const int own_limit = own_memory_limit(kind, request.ranks);
  if (own_limit == 0)
    throw InputError{message("schedule ", facts.name,
                             " is not made from durations; zb-h1, zb-h2, zb-v, v-half and v-min "
                             "are")};
  check_rules(kind, request);
  const int stages = num_stages(kind, request);
  check_durations(facts, durations, stages);
  const bool is_line = stages == request.ranks;
  const int limit = memory_limit == 0 ? own_limit : memory_limit;
  const int least = is_line ? 1 : 2;
  if (limit < least)
    throw InputError{message("schedule ", facts.name, ": no order runs with memory for ", limit,
                             " activations per rank; it takes at least ", least)};
  const auto orders = is_line ? line_orders(facts.name, request, durations, limit)
                              : v_orders(facts.name, request, limit);
  // An idle rank that takes a weight gradient may delay what arrives meanwhile, so filling as if
  // messages took no time, or every action the same, may end earlier.
  const Durations without_messages{durations.stages, 0};
  std::optional<Schedule> best;
  double best_window = 0;
  for (const Schedule& order : orders)
    for (const Durations& assumed : {durations, without_messages, Durations{}})
      for (const auto rule :
           {generators::WeightRule::eager, generators::WeightRule::only_in_gaps}) {
        Schedule filled = generators::fill_weights(order, assumed, limit, rule);
        const double window = replay(filled, durations).window;
        if (best && window >= best_window) continue;
        best = std::move(filled);
        best_window = window;
      }
  return std::move(best).value();
}

}  // namespace shardmark::pipeline
