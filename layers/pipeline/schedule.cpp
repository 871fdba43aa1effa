#include "layers/pipeline/schedule.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>

namespace shardmark::pipeline {

std::string_view name_of(Act act) {
  static constexpr std::array<std::string_view, num_acts> names{
      "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  return names[static_cast<std::size_t>(act)];
}

std::string to_text(const Action& action) {
  return message(action.stage, name_of(action.act), action.micro);
}

Action other_end(const Action& action) {
  switch (action.act) {
    case Act::send_F:
      return {Act::recv_F, action.stage + 1, action.micro};
    case Act::recv_F:
      return {Act::send_F, action.stage - 1, action.micro};
    case Act::send_B:
      return {Act::recv_B, action.stage - 1, action.micro};
    case Act::recv_B:
      return {Act::send_B, action.stage + 1, action.micro};
    default:
      SHARDMARK_CHECK(false, to_text(action), " is not a message");
  }
}

std::string to_text(const Step& step) {
  if (!step.with) return to_text(step.action);
  return message('(', to_text(step.action), ';', to_text(*step.with), ')',
                 is_compute(step.action.act) ? "OVERLAP_F_B" : "SEND_RECV");
}

std::vector<int> Schedule::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    if (rank_of_stage[s] == rank || (is_two_way() && rank_of_second_copy[s] == rank))
      stages.push_back(stage);
  }
  return stages;
}

Lane lane_of(const Step& step, Lowering lowering) {
  if (is_compute(step.action.act)) return Lane::compute;
  if (lowering == Lowering::merged) return Lane::pp_fwd_send;
  switch (step.action.act) {
    case Act::recv_F:
      return Lane::pp_fwd_recv;
    case Act::send_B:
      return Lane::pp_bwd_send;
    case Act::recv_B:
      return Lane::pp_bwd_recv;
    default:
      return Lane::pp_fwd_send;
  }
}

}  // namespace shardmark::pipeline
