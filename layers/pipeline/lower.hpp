#pragma once

#include "layers/pipeline/schedule.hpp"

namespace shardmark::pipeline {

/// Every B becomes I, then W: the input gradient can leave before the weight gradient is computed.
[[nodiscard]] Schedule split_backward(const Schedule& schedule);

/// Adds a SEND after each action whose result another rank needs, and the RECV there before the
/// first step that starts later (in unit times), so that messages are posted early. On every rank
/// messages follow one global order, hence neither policy deadlocks, even if sends wait for their
/// receives. The schedule must be valid and not yet lowered; `policy` split or merged. n log n.
[[nodiscard]] Schedule lower(const Schedule& schedule, Lowering policy);

}  // namespace shardmark::pipeline
