#include "bench/pipeline/schedules.hpp"

#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/pipeline/render.hpp"
#include "layers/pipeline/validate.hpp"

#include <algorithm>
#include <filesystem>

namespace shardmark::bench::pp {
namespace {

void check_valid(const pipeline::Schedule& schedule, std::string_view what) {
  const std::vector<pipeline::Problem> problems = pipeline::validate(schedule);
  if (problems.empty()) return;
  std::size_t num_steps = 0;
  for (const auto& steps : schedule.ranks) num_steps += steps.size();
  std::string text;
  constexpr std::size_t most_shown = 512;
  if (num_steps <= most_shown) {
    text = pipeline::to_grid(schedule, problems);
    text.pop_back();  // the end of the last line
  } else {
    for (const pipeline::Problem& problem : problems)
      text += message(text.empty() ? "" : "\n", to_text(problem));
  }
  throw InputError{message(what, " cannot run:\n", text)};
}

}  // namespace

ScheduleFile load_schedule(const std::string& path) {
  ScheduleFile file{std::filesystem::path{path}.filename().string(),
                    pipeline::parse_csv(read_file(path))};
  file.schedule.name = file.name;
  check_valid(file.schedule, "the schedule");
  if (file.schedule.lowering == pipeline::Lowering::none)
    for (const auto policy : {pipeline::Lowering::split, pipeline::Lowering::merged})
      check_valid(pipeline::lower(file.schedule, policy), "the schedule with its messages");
  return file;
}

std::string_view name_of(pipeline::Lowering lowering) {
  switch (lowering) {
    case pipeline::Lowering::none:
      return "none";
    case pipeline::Lowering::split:
      return "split";
    case pipeline::Lowering::merged:
      return "merged";
  }
  return "";
}

bool can_fit(pipeline::ScheduleKind kind) { return pipeline::own_memory_limit(kind, 1) > 0; }

std::vector<ScheduleChoice> schedule_choices(const Options& options) {
  std::vector<ScheduleChoice> choices;
  for (const pipeline::ScheduleKind kind : options.kinds) {
    ScheduleChoice choice{std::string{pipeline::facts_of(kind).name}, kind};
    choice.is_fitted = can_fit(kind) && (options.fit || options.memory_limit > 0);
    if (choice.is_fitted && options.fit) choice.name += "-fit";
    if (choice.is_fitted && options.memory_limit > 0)
      choice.name += message("-max", options.memory_limit);
    choices.push_back(std::move(choice));
  }
  if (options.file) choices.push_back({options.file->name, {}});
  return choices;
}

int num_chunks(const Options& options, const ScheduleChoice& choice,
               const pipeline::Request& request) {
  if (choice.kind) {
    const int usual = pipeline::num_chunks(*choice.kind, request);
    return usual > 1 && request.chunks > 0 ? request.chunks : usual;
  }
  const pipeline::Schedule& schedule = options.file->schedule;
  return (schedule.num_stages + schedule.num_ranks() - 1) / schedule.num_ranks();
}

pipeline::Schedule make_schedule(const Options& options, const ScheduleChoice& choice,
                                 const pipeline::Request& request,
                                 const pipeline::Durations& durations) {
  if (choice.is_fitted)
    return pipeline::fit(*choice.kind, request, durations, options.memory_limit);
  if (choice.kind) return pipeline::generate(*choice.kind, request);
  const pipeline::Schedule& schedule = options.file->schedule;
  if (request.ranks != schedule.num_ranks())
    throw InputError{message("pp ", request.ranks, ": ", choice.name, " is a schedule for ",
                             schedule.num_ranks(), " ranks; leave out --pp, or give --pp ",
                             schedule.num_ranks())};
  if (request.micro != schedule.num_micro)
    throw InputError{message(
        request.micro, " micro-batches: ", choice.name, " is a schedule for ", schedule.num_micro,
        "; leave out --microbatches, or give --microbatches ", schedule.num_micro)};
  return schedule;
}

std::vector<pipeline::Lowering> policies(const Options& options, const ScheduleChoice& choice) {
  if (!choice.kind && options.file->schedule.lowering != pipeline::Lowering::none)
    return {options.file->schedule.lowering};
  if (options.p2p.empty()) return {pipeline::Lowering::split};
  return options.p2p;
}

std::vector<int> sharing_of(const pipeline::Schedule& schedule) {
  std::vector<int> ids = schedule.rank_of_stage;
  // DualPipe: stages s and p - 1 - s are both on the ranks s and p - 1 - s.
  for (std::size_t stage = 0; stage < schedule.rank_of_second_copy.size(); ++stage)
    ids[stage] = std::min(ids[stage], schedule.rank_of_second_copy[stage]);
  return ids;
}

}  // namespace shardmark::bench::pp
