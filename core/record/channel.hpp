#pragma once

#include "core/mesh.hpp"
#include "core/types.hpp"

#include <tuple>

namespace shardmark {

/// Names a communicator: equal for all members of a group on a lane.
using ChannelKey = std::tuple<Axis, int, int, int, Lane>;
[[nodiscard]] inline ChannelKey channel_key(const Group& group, Lane lane) {
  return {group.axis, group.first, group.stride, group.size, lane};
}

}  // namespace shardmark
