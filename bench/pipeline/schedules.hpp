#pragma once

#include "bench/pipeline/options.hpp"

#include <memory>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// Reads and validates a schedule, as it is and with its messages. Throws InputError with what is
/// wrong and, unless it is long, the schedule as a grid in which the failing steps are marked.
[[nodiscard]] ScheduleFile load_schedule(const std::string& path);

/// "split", "merged", "none".
[[nodiscard]] std::string_view name_of(pipeline::Lowering lowering);

/// A schedule of the sweep: one that --schedule names, or that of the file.
struct ScheduleChoice {
  std::string name;
  std::optional<pipeline::ScheduleKind> kind;  ///< none: the file's
  bool is_fitted{false};                       ///< under a memory limit, or for measured times
};
/// Whether --fit and --memory-limit are for it.
[[nodiscard]] bool can_fit(pipeline::ScheduleKind kind);
[[nodiscard]] std::vector<ScheduleChoice> schedule_choices(const Options& options);
/// Stages per rank, as asked for: a V shape with other than 2 is refused by make_schedule.
[[nodiscard]] int num_chunks(const Options& options, const ScheduleChoice& choice,
                             const pipeline::Request& request);
/// Compute only, or lowered if the file is; `durations` are for fitted ones. Throws InputError when
/// the schedule does not allow the request.
[[nodiscard]] pipeline::Schedule make_schedule(const Options& options, const ScheduleChoice& choice,
                                               const pipeline::Request& request,
                                               const pipeline::Durations& durations = {});
/// How --p2p wants its messages; those that the file has already stay.
[[nodiscard]] std::vector<pipeline::Lowering> policies(const Options& options,
                                                       const ScheduleChoice& choice);

/// For each stage a number that stages on the same ranks share (`rank_of_stage` of split_by_cost).
[[nodiscard]] std::vector<int> sharing_of(const pipeline::Schedule& schedule);

}  // namespace shardmark::bench::pp
