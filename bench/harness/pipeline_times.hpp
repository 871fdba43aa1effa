#pragma once

#include "core/record.hpp"
#include "layers/pipeline/schedule.hpp"
#include "layers/shape.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench {

/// Where a pipeline's window went on one rank, microseconds. The window is common: from the first
/// rank's start to the last one's closing barrier. Instants are told apart in this order: a compute
/// kernel runs, a collective is open, a message of this rank moves, the rank is between two kernels
/// of one action, waits in a receive, waits in a send, does nothing.
///   window = compute() + collective + exposed_transfer + gap + wait + blocked + idle + residual
///   bubble = window - compute() - collective - exposed_transfer
struct PipelineSplit {
  double window_us{0};
  /// Sums over compute kernels of F, whole B, I, W; and outside of them (zeroing gradients).
  double forward_us{0}, backward_us{0}, input_us{0}, weight_us{0}, other_us{0};
  double collective_us{0};        ///< other communication (tp, cp, dp) that hides behind no kernel
  double transfer_us{0};          ///< its messages, from when both ends had come, hidden or not
  double exposed_transfer_us{0};  ///< of that what hides behind neither
  double gap_us{0};      ///< between kernels of one action while a message is open: looking for it
  double wait_us{0};     ///< in a receive whose sender has not come
  double blocked_us{0};  ///< in a send whose receiver has not come
  double idle_us{0};     ///< nothing runs and nothing is open, by the executor's own clock
  double start_us{0};    ///< of idle: before its first op, which the host submits meanwhile
  double drain_us{0};    ///< of idle: from its last op to the window's end
  double bubble_us{0}, residual_us{0};
  double unexplained_us{0};  ///< bubble - wait - blocked - start - drain

  [[nodiscard]] double compute_us() const {
    return forward_us + backward_us + input_us + weight_us + other_us;
  }
};

/// The same over ranks and iterations: of each number the mean over ranks, then the median over
/// iterations. Medians of parts do not add up exactly; every iteration's do.
struct Bubble {
  PipelineSplit mean;
  double of_ideal{0};  ///< bubble / compute
  double of_total{0};  ///< bubble / window
};

/// What a stage computes for one micro-batch: the mean over the ranks that hold it, then the median
/// over iterations.
struct StageTime {
  double forward_us{0}, backward_us{0};  ///< backward: B, or I and W
};

struct PipelineTimes {
  int iterations{0};
  std::vector<PipelineSplit> ranks;  ///< medians over iterations
  std::vector<StageTime> stages;
  Bubble measured;
  /// The same op lists replayed (sim/measured.hpp) with the op times of each iteration, and of a
  /// message what it took once both ends had come, not until a busy end looked: what those
  /// times alone leave as bubble, without a host that submits, a barrier or a core that is taken
  /// away. Iteration by iteration, so that a slow kernel, which delays the measured step as well,
  /// is explained; times that are medians would predict a step without any.
  Bubble replayed;
  double replay_error_pct{0};  ///< replayed window over measured one, minus 1; median
  /// Of each rank the most activations (of one stage and micro-batch) held at once in any
  /// iteration: from the start of F's first kernel to the end of the last one of W or B.
  std::vector<int> peak_in_flight;
  /// Not empty: an iteration whose parts do not add up to its window within 0.1 %, or in which a
  /// compute op or message left no kernel.
  std::string problem;
};

/// One rank's part of an iteration, measured or replayed, on a clock that all ranks share.
struct RankIteration {
  std::int64_t begin_ns{0}, end_ns{0};  ///< barrier to barrier on this rank
  std::int64_t idle_ns{0};              ///< in between: no kernel ran, no communication was open
  std::vector<KernelRecord> records;    ///< op_seq counts from the iteration's first op
};

/// Splits iterations of one pipeline.
class PipelineAnalysis {
 public:
  /// `lists[r]`: the ops of an iteration of rank r, whose paths must outlive this. The first name
  /// in a path that is an action ("step/1F3/block0") says whose work an op is.
  PipelineAnalysis(std::vector<std::vector<OpRecord>> lists, int num_stages);

  /// Of each rank.
  [[nodiscard]] std::vector<PipelineSplit> split(std::span<const RankIteration> ranks) const;
  /// The iteration as the replay has it.
  [[nodiscard]] std::vector<RankIteration> replay(std::span<const RankIteration> ranks) const;
  /// Takes a profiled iteration into the result.
  void add(std::span<const RankIteration> ranks);
  /// The same of a predicted one, which is its own replay.
  void add_predicted(std::span<const RankIteration> ranks);
  [[nodiscard]] PipelineTimes result() const;

 private:
  /// The two ends of a message: rank and position in its list.
  struct Message {
    std::size_t sender, send_op, receiver, receive_op;
  };
  struct Sample {
    std::vector<PipelineSplit> ranks, replayed;
    std::vector<StageTime> stages;
    std::vector<int> in_flight;
  };

  void match_messages();
  /// Of each op of each rank: how long the message that it sends moves, from when both ends had
  /// come to when the first of them knew it over; negative where it sends none.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> message_times_ns(
      std::span<const RankIteration> ranks) const;
  [[nodiscard]] std::vector<StageTime> stage_times(std::span<const RankIteration> ranks) const;
  [[nodiscard]] std::vector<int> most_in_flight(std::span<const RankIteration> ranks) const;
  void check(std::span<const RankIteration> ranks, std::span<const PipelineSplit> splits);

  std::vector<std::vector<OpRecord>> lists_;
  std::vector<std::vector<std::optional<pipeline::Action>>> actions_;  ///< of each op
  std::vector<Message> messages_;
  std::size_t num_stages_;
  std::vector<Sample> samples_;
  std::string problem_;
};

/// "step/1F3/block0/mlp" is of 1F3; nothing where no name in the path is a compute action.
[[nodiscard]] std::optional<pipeline::Action> action_of(const std::string& path);

/// Activations (of one stage and micro-batch) that a rank of a pipeline holds at most.
struct InFlight {
  int claimed{0};   ///< by the schedule
  int measured{0};  ///< PipelineTimes::peak_in_flight, the most of all ranks at its place
};
/// By place in the pipeline of `layer`; none for inference, where nothing is held for a backward.
[[nodiscard]] std::vector<InFlight> in_flight(const PipelineTimes& times, const LayerConfig& layer);
/// The place in its pipeline of a rank of a row, replicas included.
[[nodiscard]] std::size_t pipeline_place(const Parallel& parallel, std::size_t rank);
/// Empty, or which rank held more than the schedule claims: then it was not what ran.
[[nodiscard]] std::string in_flight_problem(std::span<const InFlight> places);

}  // namespace shardmark::bench
