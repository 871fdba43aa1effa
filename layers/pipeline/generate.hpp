#pragma once

// Schedules by name. Each generator is a pure function of a request; the file of each opens with
// the idea, its bubble and memory, and its source.

#include "layers/pipeline/replay.hpp"
#include "layers/pipeline/schedule.hpp"

#include <span>

namespace shardmark::pipeline {

enum class ScheduleKind : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  v_half,
  v_min,
  dualpipe,
  dualpipe_v,
};

struct ScheduleFacts {
  ScheduleKind kind;
  std::string_view name;   ///< "1f1b"
  std::string_view about;  ///< one line: what it trades for what
};
[[nodiscard]] std::span<const ScheduleFacts> schedules();
[[nodiscard]] const ScheduleFacts& facts_of(ScheduleKind kind);

/// What a schedule is generated for.
struct Request {
  int ranks{1};   ///< p
  int micro{1};   ///< m, micro-batches per iteration
  int chunks{0};  ///< v, stages per rank: interleaved only, 0 = 2. V shapes have 2, others 1
  int group{0};   ///< interleaved: micro-batches per turn of a chunk, 0 = p
  int layers{0};  ///< of the model; 0 leaves their rule out
};
/// Stages per rank (v), counting what DualPipe holds twice once.
[[nodiscard]] int num_chunks(ScheduleKind kind, const Request& request);
/// Stages in all: p * v.
[[nodiscard]] int num_stages(ScheduleKind kind, const Request& request);

/// What the schedule demands of ranks, chunks, micro-batches and layers (the rules of Megatron-LM,
/// zero-bubble and DualPipe). Throws InputError naming the value, the rule and what would work.
void check_rules(ScheduleKind kind, const Request& request);

/// Calls `check_rules`, then makes the schedule, compute only.
[[nodiscard]] Schedule generate(ScheduleKind kind, const Request& request);

/// How many activations (of one stage and micro-batch) a rank of a zero-bubble schedule may hold,
/// from a forward to the end of its W: zb-h1 p, zb-h2 2p - 1, zb-v 2p, v-half about p, v-min about
/// 2p/3 (a stage of a V has half the layers of a stage of 1F1B). Other kinds: no limit, 0.
[[nodiscard]] int own_memory_limit(ScheduleKind kind, int num_ranks);

/// A zero-bubble schedule for measured durations: the best of several orders of forwards and input
/// gradients that fit the limit, with weight gradients where they delay least (list scheduling,
/// arXiv 2401.10241 section 3.1, 2405.15362 section 4). zb-h1 and zb-h2 differ only in their own
/// limit, as do zb-v, v-half and v-min. `memory_limit` in activations as above, 0 = the kind's own.
/// Throws InputError for other kinds and for a limit that no order meets.
[[nodiscard]] Schedule fit(ScheduleKind kind, const Request& request, const Durations& durations,
                           int memory_limit = 0);

}  // namespace shardmark::pipeline
