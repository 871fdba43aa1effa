#pragma once

#include "layers/program.hpp"

namespace shardmark {

/// Runs this rank's part of a pipeline: the interpreter of its schedule's steps. A step F, B, I or
/// W calls the stage; a SEND or RECV moves one boundary tensor on the schedule's lanes; fences
/// order the two only where they meet at a buffer. At the end of an iteration gradients of stages
/// that two ranks hold (DualPipe) and of data-parallel copies are summed.
///
/// Memory: as many states per stage as are in flight at once in this schedule. Gradients are zeroed
/// at the beginning of a step and add up in the order of the schedule's W (or B).
///
/// tensors(): weights and their gradients of this rank's stages, named as the whole model's
/// ("block3/..."), and of every micro-batch that begins or ends here its ids, targets and losses
/// ("micro2/loss"). forward() and backward() throw: a pipeline has only steps.
[[nodiscard]] std::unique_ptr<LayerProgram> make_pipeline_program(Rank& rank,
                                                                  const LayerConfig& config);

}  // namespace shardmark
