#include "layers/pipeline/generate.hpp"

#include "core/error.hpp"
#include "layers/pipeline/generators_internal.hpp"

#include <algorithm>
#include <array>

namespace shardmark::pipeline {
namespace {

using Kind = ScheduleKind;

constexpr std::array<ScheduleFacts, 10> table{{
    {Kind::gpipe, "gpipe", "all forwards, then all backwards; holds every activation"},
    {Kind::one_f_one_b, "1f1b", "the bubble of gpipe with at most p activations"},
    {Kind::interleaved, "interleaved", "1/v of the bubble for v times the messages"},
    {Kind::zb_h1, "zb-h1", "about 1/3 of the bubble with the memory of 1f1b"},
    {Kind::zb_h2, "zb-h2", "no bubble but the stagger, with twice the memory of 1f1b"},
    {Kind::zb_v, "zb-v", "no bubble but the stagger, with the memory of 1f1b"},
    {Kind::v_half, "v-half", "1/2 of the bubble with 1/2 of the memory of 1f1b"},
    {Kind::v_min, "v-min", "2/3 of the bubble with 1/3 of the memory of 1f1b"},
    {Kind::dualpipe, "dualpipe", "hides communication in overlapped passes; parameters twice"},
    {Kind::dualpipe_v, "dualpipe-v", "dualpipe on half the ranks, folded into a V"},
}};

bool is_v(Kind kind) {
  return kind == Kind::zb_v || kind == Kind::v_half || kind == Kind::v_min ||
         kind == Kind::dualpipe_v;
}

template <class... Parts>
[[noreturn]] void refuse(Kind kind, const Parts&... parts) {
  throw InputError{message("schedule ", facts_of(kind).name, ": ", parts...)};
}

void check_interleaved(const Request& request) {
  const Kind kind = Kind::interleaved;
  const int p = request.ranks, m = request.micro, v = num_chunks(kind, request);
  if (v < 2) refuse(kind, v, " chunk per rank is 1f1b; give --chunks 2 or more");
  if (m < p)
    refuse(kind, m, " micro-batches on ", p, " ranks; it needs at least one per rank: ", p,
           " or more");
  const int group = request.group > 0 ? request.group : p;
  if (group < p || group > m)
    refuse(kind, "groups of ", group, " micro-batches; a group has at least ", p,
           " (the ranks) and at most ", m, " (the micro-batches)");
  const int rest = m % group;
  if (rest != 0 && rest < p)
    refuse(kind, m, " micro-batches in groups of ", group, " leave ", rest,
           ", and the last group needs at least ", p, " (the ranks): ", m - rest, " or ",
           m - rest + p, " micro-batches would work");
}

void check_dualpipe(const Request& request) {
  const Kind kind = Kind::dualpipe;
  const int p = request.ranks, m = request.micro;
  if (p % 2 != 0)
    refuse(kind, p,
           " ranks; its two directions meet in the middle, so the number must be even: ", p + 1,
           " would work, and dualpipe-v takes any");
  if (m % 2 != 0)
    refuse(kind, m, " micro-batches; half of them start at each end, so the number must be even: ",
           std::max(m + 1, 2 * p), " would work");
  if (m < 2 * p)
    refuse(kind, m, " micro-batches on ", p, " ranks; it needs at least 2 per rank: ", 2 * p,
           " or more");
}

void check_layers(Kind kind, const Request& request) {
  const int stages = num_stages(kind, request);
  if (request.layers == 0 || request.layers >= stages) return;
  refuse(kind, request.layers, " layers for ", stages, " stages (", request.ranks, " ranks x ",
         num_chunks(kind, request), "); every stage needs one: at least ", stages,
         " layers, or fewer ranks or chunks");
}

}  // namespace

std::span<const ScheduleFacts> schedules() { return table; }

const ScheduleFacts& facts_of(ScheduleKind kind) { return table[static_cast<std::size_t>(kind)]; }

int num_chunks(ScheduleKind kind, const Request& request) {
  if (kind == Kind::interleaved) return request.chunks > 0 ? request.chunks : 2;
  return is_v(kind) ? 2 : 1;
}

int num_stages(ScheduleKind kind, const Request& request) {
  return request.ranks * num_chunks(kind, request);
}

void check_rules(ScheduleKind kind, const Request& request) {
  const int p = request.ranks, m = request.micro;
  if (p < 1) refuse(kind, p, " ranks; a pipeline has 1 or more");
  if (m < 1) refuse(kind, m, " micro-batches; an iteration has 1 or more");
  if (request.chunks < 0) refuse(kind, request.chunks, " chunks; a rank has 1 or more");
  if (is_v(kind) && request.chunks != 0 && request.chunks != 2)
    refuse(kind, request.chunks, " chunks per rank; a V has one down and one up: --chunks 2");
  if (kind == Kind::interleaved) check_interleaved(request);
  if (kind == Kind::dualpipe) check_dualpipe(request);
  if (kind == Kind::dualpipe_v && m < 2 * p)
    refuse(kind, m, " micro-batches on ", p, " ranks; it needs at least 2 per rank: ", 2 * p,
           " or more");
  check_layers(kind, request);
}

Schedule generate(ScheduleKind kind, const Request& request) {
  check_rules(kind, request);
  const int p = request.ranks, m = request.micro;
  const std::string_view name = facts_of(kind).name;
  const auto filled = [&](const Schedule& order) {
    return generators::fill_weights(order, {}, own_memory_limit(kind, p),
                                    generators::WeightRule::eager);
  };
  const auto block = [&](const generators::BlockSteps& steps) {
    return filled(generators::repeat_block(name, p, m, steps).value());
  };
  const auto line = [&](int per_rank) {
    std::vector<int> forwards;
    for (int rank = 0; rank < p; ++rank) forwards.push_back(per_rank * (p - 1 - rank) + 1);
    return filled(generators::one_f_one_i(name, m, forwards));
  };
  switch (kind) {
    case Kind::gpipe:
      return generators::gpipe(request);
    case Kind::one_f_one_b:
      return generators::one_f_one_b(request);
    case Kind::interleaved:
      return generators::interleaved(request);
    case Kind::zb_h1:
      return line(1);
    case Kind::zb_h2:
      return line(2);
    case Kind::zb_v:
      return filled(generators::zb_v_order(name, p, m));
    case Kind::v_half:
      return block({2, 1, 2, 1});
    case Kind::v_min:
      return block({1, 1, 1, 1});
    case Kind::dualpipe:
      return generators::dualpipe(request);
    case Kind::dualpipe_v:
      return generators::dualpipe_v(request);
  }
  SHARDMARK_CHECK(false, "no such schedule");
}

int own_memory_limit(ScheduleKind kind, int num_ranks) {
  switch (kind) {
    case Kind::zb_h1:
      return num_ranks;
    case Kind::zb_h2:
      return 2 * num_ranks - 1;
    case Kind::zb_v:
      return 2 * num_ranks;
    case Kind::v_half:
      return 2 * ((num_ranks + 2) / 2);
    case Kind::v_min:
      return 2 * ((num_ranks + 4) / 3);
    default:
      return 0;
  }
}

namespace generators {

Schedule empty_loop(std::string_view name, int ranks, int chunks, int micro) {
  Schedule schedule;
  schedule.name = name;
  schedule.num_stages = ranks * chunks;
  schedule.num_micro = micro;
  for (int stage = 0; stage < schedule.num_stages; ++stage)
    schedule.rank_of_stage.push_back(stage % ranks);
  schedule.ranks.resize(static_cast<std::size_t>(ranks));
  return schedule;
}

Schedule empty_v(std::string_view name, int ranks, int micro) {
  Schedule schedule = empty_loop(name, ranks, 2, micro);
  for (int stage = ranks; stage < 2 * ranks; ++stage)
    schedule.rank_of_stage[static_cast<std::size_t>(stage)] = 2 * ranks - 1 - stage;
  return schedule;
}

}  // namespace generators
}  // namespace shardmark::pipeline
