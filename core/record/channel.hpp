#pragma once

#include "core/mesh.hpp"
#include "core/types.hpp"

#include <tuple>

namespace shardmark {

/// Where the ends of a lane's communication meet: the lane itself, but for those of a pipeline.
/// What a rank sends on pp_fwd_send its peer receives on pp_fwd_recv, likewise backward, so the two
/// lanes of a direction share one channel although they run at the same time. On a channel messages
/// from one member to another keep their order; they all leave on one lane and arrive on one.
[[nodiscard]] constexpr Lane channel_of(Lane lane) {
  if (lane == Lane::pp_fwd_recv) return Lane::pp_fwd_send;
  if (lane == Lane::pp_bwd_recv) return Lane::pp_bwd_send;
  return lane;
}

/// Names a communicator: equal for all members of a group on a lane's channel.
using ChannelKey = std::tuple<Axis, int, int, int, Lane>;
[[nodiscard]] inline ChannelKey channel_key(const Group& group, Lane lane) {
  return {group.axis, group.first, group.stride, group.size, channel_of(lane)};
}

}  // namespace shardmark
