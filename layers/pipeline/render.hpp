#pragma once

#include "layers/pipeline/replay.hpp"
#include "layers/pipeline/validate.hpp"

#include <span>

namespace shardmark::pipeline {

/// A line per rank, a column per unit of time (every F, I, W takes one, B two), `.` where it idles.
/// A schedule with problems, or a lowered one, has a column per step instead, and each failing step
/// stands between > and <.
[[nodiscard]] std::string to_grid(const Schedule& schedule, std::span<const Problem> problems = {});

/// The same as a drawing: forwards, backwards and weight gradients in colours, a darker shade for
/// later chunks of a rank, failing steps in red.
[[nodiscard]] std::string to_svg(const Schedule& schedule, std::span<const Problem> problems = {},
                                 const Durations& durations = {});

}  // namespace shardmark::pipeline
