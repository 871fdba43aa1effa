#include "bench/pipeline/print.hpp"

#include "bench/pipeline/schedules.hpp"
#include "core/error.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/pipeline/render.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardmark::bench::pp {
namespace {

struct Printed {
  std::string title, problem;
  std::optional<pipeline::Schedule> schedule;
  std::optional<pipeline::Durations> measured{};
};

std::string facts_of(const Printed& printed) {
  const pipeline::Timeline timeline =
      pipeline::replay(*printed.schedule, printed.measured.value_or(pipeline::Durations{}));
  return fmt::format("bubble {:.1f} % of the window at {} times, at most {} activations at once",
                     100 * timeline.bubble_of_total(), printed.measured ? "measured" : "unit",
                     timeline.peak_in_flight());
}

Printed make(const Options& options, const ScheduleChoice& choice,
             const pipeline::Request& request) {
  Printed printed;
  const int chunks = num_chunks(options, choice, request);
  printed.title = fmt::format("{}, {} rank{}{}, {} micro-batch{}", choice.name, request.ranks,
                              request.ranks == 1 ? "" : "s",
                              chunks > 1 ? fmt::format(" x {} chunks", chunks) : "", request.micro,
                              request.micro == 1 ? "" : "es");
  try {
    printed.schedule = make_schedule(options, choice, request);
  } catch (const InputError& error) {
    printed.problem = error.what();
  }
  return printed;
}

/// One of each, although chunks mean nothing to most schedules.
void add(std::vector<Printed>& list, Printed printed) {
  if (std::ranges::find(list, printed.title, &Printed::title) == list.end())
    list.push_back(std::move(printed));
}

std::vector<Printed> list_of(const Options& options, int world_size) {
  std::vector<Printed> list;
  for (const int tp : options.base.tp)
    for (const int dp : options.dp)
      for (const int pp : pp_degrees(options, tp, dp, world_size))
        for (const int micro : options.micro)
          for (const int chunks : options.chunks)
            for (const ScheduleChoice& choice : schedule_choices(options)) {
              const Printed printed = make(options, choice, {pp, micro, chunks});
              if (options.p2p.empty() || !printed.schedule) {
                add(list, printed);
                continue;
              }
              for (const pipeline::Lowering policy : policies(options, choice)) {
                Printed lowered = printed;
                lowered.title += fmt::format(", messages {}", name_of(policy));
                if (lowered.schedule->lowering == pipeline::Lowering::none)
                  lowered.schedule = pipeline::lower(*lowered.schedule, policy);
                add(list, std::move(lowered));
              }
            }
  return list;
}

pipeline::Schedule without_messages(pipeline::Schedule schedule) {
  for (std::vector<pipeline::Step>& steps : schedule.ranks)
    std::erase_if(steps, [](const pipeline::Step& step) { return !is_compute(step.action.act); });
  schedule.lowering = pipeline::Lowering::none;
  return schedule;
}

Printed printed_case(const Options& options, const Case& made, const MeasuredTimes& times) {
  const PipelineConfig& run = made.layer.pipeline;
  Printed printed{.title = describe(made), .problem = made.skip_reason, .schedule = {}};
  if (!made.skip_reason.empty()) return printed;
  printed.schedule = options.p2p.empty() ? without_messages(*run.schedule) : *run.schedule;
  printed.measured = times.at(cost_key(made)).durations(run.blocks);
  return printed;
}

std::string grids_of(const std::vector<Printed>& list) {
  std::string text;
  for (const Printed& printed : list) {
    if (!text.empty()) text += '\n';
    text += printed.schedule ? fmt::format("{}: {}\n{}", printed.title, facts_of(printed),
                                           pipeline::to_grid(*printed.schedule))
                             : fmt::format("{}: none: {}\n", printed.title, printed.problem);
  }
  return text;
}

std::string text_of(const std::vector<Printed>& list, PrintAs as) {
  if (std::ranges::none_of(list, [](const Printed& p) { return p.schedule.has_value(); })) {
    std::string reasons;
    for (const Printed& printed : list)
      reasons += message(reasons.empty() ? "" : "\n", printed.problem);
    throw InputError{reasons};
  }
  if (as == PrintAs::grid) return grids_of(list);
  if (list.size() > 1)
    throw InputError{message("--print-schedule csv and svg print one schedule, and these are ",
                             list.size(), ": ", list[0].title, "; ", list[1].title,
                             list.size() > 2 ? "; ..." : "",
                             "; give one value of each option, or --print-schedule grid")};
  return as == PrintAs::csv ? pipeline::to_csv(*list.front().schedule)
                            : pipeline::to_svg(*list.front().schedule);
}

}  // namespace

std::string print_schedules(const Options& options, int world_size) {
  return text_of(list_of(options, world_size), *options.print);
}

std::string print_schedules(const Options& options, const Sweep& sweep,
                            const MeasuredTimes& times) {
  std::vector<Printed> list;
  for (const Case& made : sweep.cases) list.push_back(printed_case(options, made, times));
  return text_of(list, *options.print);
}

}  // namespace shardmark::bench::pp
