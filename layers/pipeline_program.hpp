#pragma once

#include "layers/program.hpp"

namespace shardmark {

/// Runs this rank's part of a pipeline: the interpreter of its plan (pipeline/rank_plan.hpp). A
/// step F, B, I or W calls the stage; a SEND or RECV moves one boundary tensor on the schedule's
/// lanes; fences order the two only where they meet at a buffer. At the end of an iteration
/// gradients that the tp ranks have parts of are summed (sequence parallelism, shared KV heads),
/// then those of stages that two ranks hold (DualPipe) and of data-parallel copies, and with tied
/// embeddings the table's with the head's.
///
/// Memory: as many states per stage as are in flight at once in this schedule, and as many boundary
/// tensors as wait or are in use; what is recomputed, once per rank; gradients between the layers
/// of a stage once, or, on a rank with weight gradients apart, per state. Gradients are zeroed at
/// the beginning of a step and add up in the order of the schedule's W (or B); those of norms in
/// the order of I (or B).
///
/// tensors(): weights and their gradients of this rank's stages, named as the whole model's
/// ("block3/..."), and of every micro-batch that begins or ends here its ids, targets and losses
/// ("micro2/head/loss"; the copy of the model at dp position d has micro-batches d * m, ...).
/// forward() and backward() throw Error: a pipeline has only steps.
[[nodiscard]] std::unique_ptr<LayerProgram> make_pipeline_program(Rank& rank,
                                                                  const LayerConfig& config);

/// The ranks of `config.parallel.pp` that hold the stage, this one among them: one, or two
/// (DualPipe).
[[nodiscard]] Group copies_of(const LayerConfig& config, int stage);
/// The ranks of `config.parallel.pp` that hold the two ends of tied embeddings, if these are apart
/// and this rank is one of them; otherwise the rank alone.
[[nodiscard]] Group ends_of_tie(const LayerConfig& config);

}  // namespace shardmark
