#include "bench/pipeline/sweep.hpp"

#include "bench/harness/shapes.hpp"
#include "bench/pipeline/schedules.hpp"
#include "core/error.hpp"
#include "layers/pipeline/lower.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace shardmark::bench::pp {
namespace {

/// How one shape is run.
struct Setup {
  int tp{1}, dp{1}, pp{1}, micro{1}, chunks{0};
  ScheduleChoice schedule;
  pipeline::Lowering p2p{pipeline::Lowering::split};
  Balance balance{Balance::count};
  Recompute recompute{Recompute::none};
  bool sequence_parallel{false};
  std::optional<InferenceConfig> inference{};  ///< without a schedule then

  [[nodiscard]] pipeline::Request request() const { return {pp, micro, chunks}; }
};

std::vector<Setup> inference_setups(const Options& options, int world_size) {
  std::vector<Setup> list;
  for (const InferenceStep step : options.steps)
    for (const int tp : options.base.tp)
      for (const int pp : pp_degrees(options, tp, 1, world_size))
        for (const int requests : options.micro)
          for (const Balance balance : options.balance) {
            Setup& setup = list.emplace_back();
            setup.tp = tp;
            setup.pp = pp;
            setup.micro = requests;
            setup.balance = balance;
            setup.inference = {step, requests, step == InferenceStep::decode ? options.tokens : 1};
          }
  return list;
}

std::vector<Setup> setups(const Options& options, int world_size) {
  if (options.mode == Mode::infer) return inference_setups(options, world_size);
  std::vector<Setup> list;
  for (const int tp : options.base.tp)
    for (const int dp : options.dp)
      for (const int pp : pp_degrees(options, tp, dp, world_size))
        for (const int micro : options.micro)
          for (const int chunks : options.chunks)
            for (const ScheduleChoice& schedule : schedule_choices(options))
              for (const pipeline::Lowering p2p : policies(options, schedule))
                for (const Balance balance : options.balance)
                  for (const Recompute recompute : options.recompute)
                    for (const bool sequence_parallel : options.base.sequence_parallel)
                      list.push_back({tp,
                                      dp,
                                      pp,
                                      micro,
                                      chunks,
                                      schedule,
                                      p2p,
                                      balance,
                                      recompute,
                                      sequence_parallel && tp > 1,
                                      {}});
  return list;
}

void check_world(const Setup& setup, int world_size) {
  const int ranks = setup.dp * setup.pp * setup.tp;
  if (ranks <= world_size) return;
  throw InputError{message("pp ", setup.pp, " x tp ", setup.tp, " x dp ", setup.dp, " needs ",
                           ranks, " ranks, but there are ", world_size, "; start more (mpirun -n ",
                           ranks, ", or --ranks ", ranks,
                           " with --transport threads) or lower one of them")};
}

std::string balance_of(const Options& options, Balance balance) {
  if (balance == Balance::given) return fmt::format("{}", fmt::join(options.split, "+"));
  return balance == Balance::measured ? "measured" : "count";
}

std::vector<std::int64_t> blocks_of(const Options& options, const Setup& setup, std::int64_t layers,
                                    int num_stages) {
  if (setup.balance == Balance::given)
    return pipeline::check_split(options.split, layers, num_stages);
  return pipeline::split_evenly(layers, num_stages);
}

void set_schedule(const Options& options, const Setup& setup, const MeasuredTimes& times,
                  Case& made) {
  PipelineConfig& run = made.layer.pipeline;
  const std::int64_t layers = made.layer.shape.layers;
  pipeline::Schedule schedule = make_schedule(options, setup.schedule, setup.request());
  const auto measured = times.find(cost_key(made));
  const bool is_measured = measured != times.end();
  if (setup.balance == Balance::measured && is_measured)
    run.blocks = pipeline::split_by_cost(measured->second.costs(), layers, sharing_of(schedule));
  else
    run.blocks = blocks_of(options, setup, layers, schedule.num_stages);
  if (options.fit && setup.schedule.is_fitted && is_measured)
    schedule = make_schedule(options, setup.schedule, setup.request(),
                             measured->second.durations(run.blocks));
  if (schedule.lowering == pipeline::Lowering::none)
    schedule = pipeline::lower(schedule, setup.p2p);
  run.schedule = std::make_shared<const pipeline::Schedule>(std::move(schedule));
}

Case make_case(const Options& options, const ShapeChoice& choice, const Setup& setup,
               int world_size, bool must_fit, const MeasuredTimes& times) {
  Case made;
  made.model = choice.model;
  made.vocab_unpadded = unpadded_vocab(options.base, choice);
  made.p2p = setup.pp == 1 ? "none" : name_of(setup.p2p);
  made.balance = balance_of(options, setup.balance);
  LayerConfig& layer = made.layer;
  layer.block = choice.block;
  layer.dtype = choice.dtype;
  layer.recompute = setup.recompute;
  layer.tied_embeddings = options.tie_embeddings;
  layer.shape = shape_of(options.base, choice, setup.tp);
  layer.parallel.tp.size = setup.tp;
  layer.parallel.pp.size = setup.pp;
  layer.parallel.dp.size = setup.dp;
  layer.parallel.sequence_parallel = setup.sequence_parallel;
  layer.parallel = layer.parallel.at(0, 0);
  PipelineConfig& run = layer.pipeline;
  run.micro = setup.micro;
  if (setup.inference) {
    made.phase = Phase::forward;
    layer.inference = setup.inference;
  } else {
    run.schedule_name = setup.schedule.name;
    run.chunks = num_chunks(options, setup.schedule, setup.request());
  }
  try {
    check_heads(choice, layer.shape);
    check_magnitude(layer);
    if (must_fit) check_world(setup, world_size);
    check_divisible(layer);
    if (setup.inference)
      run.blocks = blocks_of(options, setup, layer.shape.layers, setup.pp);
    else
      set_schedule(options, setup, times, made);
    check_divisible(layer);  // again: now it has a schedule
  } catch (const InputError& error) {
    run.schedule = nullptr;
    made.skip_reason = error.what();
  }
  return made;
}

template <class Text>
void note_each(Sweep& sweep, const Text& text_of) {
  std::set<std::string> seen;
  for (const Case& made : sweep.cases) {
    if (!made.skip_reason.empty()) continue;
    std::string text = text_of(made);
    if (!text.empty() && seen.insert(text).second) sweep.notices.push_back(std::move(text));
  }
}

std::string padding(const Case& made) {
  const std::int64_t vocab = made.layer.shape.vocab;
  if (made.vocab_unpadded == vocab) return {};
  return message(made.model, ": vocabulary ", made.vocab_unpadded, " padded to ", vocab,
                 ", a multiple of 128 x tp ", made.layer.parallel.tp.size);
}

std::string unevenness(const Case& made) {
  const std::vector<std::int64_t>& blocks = made.layer.pipeline.blocks;
  if (made.balance != "count" || std::ranges::min(blocks) == std::ranges::max(blocks)) return {};
  return fmt::format("{} layers in {} stages are uneven: {} blocks", made.layer.shape.layers,
                     blocks.size(), fmt::join(blocks, "+"));
}

void note_collapsed(const Options& options, Sweep& sweep) {
  if (options.chunks.size() > 1 && std::ranges::any_of(sweep.cases, [](const Case& made) {
        return made.layer.pipeline.chunks == 1;
      }))
    sweep.notices.push_back(
        "schedules with one stage per rank have one row for all values of --chunks");
  if (options.base.sequence_parallel != std::vector<bool>{false} &&
      std::ranges::count(options.base.tp, 1) > 0)
    sweep.notices.push_back("tp 1 splits no tokens: its rows have sequence parallelism off");
}

}  // namespace

Sweep expand(const Options& options, int world_size, bool must_fit, const MeasuredTimes& times) {
  Sweep sweep;
  std::set<std::string> seen;
  for (const ShapeChoice& choice : shape_choices(options.base))
    for (const Setup& setup : setups(options, world_size)) {
      Case made = make_case(options, choice, setup, world_size, must_fit, times);
      if (seen.insert(shape_key(made) + ' ' + describe(made)).second)
        sweep.cases.push_back(std::move(made));
    }
  fail_if_nothing_runs(sweep);
  note_each(sweep, padding);
  note_each(sweep, unevenness);
  note_collapsed(options, sweep);
  note_plans(options.base, sweep);
  return sweep;
}

}  // namespace shardmark::bench::pp
