#include "bench/harness/sweep.hpp"

#include "bench/harness/shapes.hpp"
#include "collectives/run.hpp"
#include "core/error.hpp"
#include "layers/recording.hpp"

#include <algorithm>
#include <set>

namespace shardmark::bench {
namespace {

/// A split of one shape.
struct Split {
  int tp{1};
  bool sequence_parallel{false}, overlap{false};
};

std::vector<Split> splits(const Options& options, int world_size) {
  std::vector<Split> list;
  for (const int tp : tp_degrees(options, world_size)) {
    if (tp == 1) {
      list.push_back({});
      continue;
    }
    for (const bool sequence_parallel : options.sequence_parallel)
      for (const bool overlap : options.overlap) list.push_back({tp, sequence_parallel, overlap});
  }
  return list;
}

void check_world(int tp, int world_size) {
  if (tp <= world_size) return;
  throw InputError{message("tp ", tp, " needs ", tp, " ranks, but there are ", world_size,
                           "; start more (mpirun -n ", tp, ", or --ranks ", tp,
                           " with --transport threads) or lower --tp")};
}

Case make_case(const Options& options, const ShapeChoice& choice, const Split& split,
               int world_size) {
  Case made;
  made.phase = choice.phase;
  made.model = choice.model;
  LayerConfig& layer = made.layer;
  layer.block = choice.block;
  layer.dtype = choice.dtype;
  layer.gather_output = options.gather_output;
  Parallel& parallel = layer.parallel;
  parallel.tp.size = split.tp;
  parallel.sequence_parallel = split.sequence_parallel;
  parallel.overlap = split.overlap;
  parallel.keep_gathered = split.sequence_parallel && options.keep_gathered;
  layer.shape = shape_of(options, choice, split.tp);
  made.vocab_unpadded = unpadded_vocab(options, choice);
  try {
    check_heads(choice, layer.shape);
    check_magnitude(layer);
    check_world(split.tp, world_size);
    check_divisible(layer);
    if (split.overlap)
      parallel.chunks = usable_chunks(layer.shape.tokens(), split.tp, split.sequence_parallel,
                                      options.overlap_chunks);
  } catch (const InputError& error) {
    made.skip_reason = error.what();
  }
  return made;
}

void note_collapsed(const Options& options, int world_size, Sweep& sweep) {
  const std::size_t variants = options.sequence_parallel.size() * options.overlap.size();
  const auto degrees = tp_degrees(options, world_size);
  const bool asked = options.sequence_parallel != std::vector<bool>{false} ||
                     options.overlap != std::vector<bool>{false};
  if (std::ranges::count(degrees, 1) == 0 || !asked) return;
  sweep.notices.push_back(message("tp 1 communicates nothing: its ", variants,
                                  " variants of sequence parallelism and overlap are one row, "
                                  "shown as off"));
}

void note_padding(Sweep& sweep) {
  std::set<std::string> seen;
  for (const Case& made : sweep.cases) {
    const std::int64_t vocab = made.layer.shape.vocab;
    if (made.layer.block != BlockKind::model || made.vocab_unpadded == vocab) continue;
    std::string text = message(made.model, ": vocabulary ", made.vocab_unpadded, " padded to ",
                               vocab, ", a multiple of 128 x tp ", made.layer.parallel.tp.size);
    if (seen.insert(text).second) sweep.notices.push_back(std::move(text));
  }
}

void note_chunks(const Options& options, Sweep& sweep) {
  std::set<std::string> seen;
  for (const Case& made : sweep.cases) {
    const Parallel& parallel = made.layer.parallel;
    if (!parallel.overlap || !made.skip_reason.empty() || parallel.chunks == options.overlap_chunks)
      continue;
    std::string text =
        message(made.layer.shape.tokens(), " tokens at tp ", parallel.tp.size, " overlap in ",
                parallel.chunks, " chunks: ", options.overlap_chunks, " do not divide them evenly");
    if (seen.insert(text).second) sweep.notices.push_back(std::move(text));
  }
}

/// What of a shape is not as usual for the hidden size.
std::string particulars(const Case& config) {
  const ModelShape& shape = config.layer.shape;
  std::string text;
  if (config.model.empty() && shape.ffn != 4 * shape.hidden) text += message(" ffn ", shape.ffn);
  if (config.model.empty() && shape.kv_heads != shape.heads)
    text += message(" kv-heads ", shape.kv_heads);
  if (shape.layers != 1 && config.layer.block == BlockKind::model)
    text += message(" layers ", shape.layers);
  return text;
}

std::string describe_inference(const Case& config) {
  const InferenceConfig& run = *config.layer.inference;
  std::string text =
      message(name_of(run.step), " pp ", config.layer.parallel.pp.size, " requests ", run.requests);
  if (run.step == InferenceStep::decode) text += message(" tokens ", run.tokens);
  if (config.balance != "count") text += message(" balance ", config.balance);
  return text;
}

/// Attention alone has heads, but no hidden width.
std::string heads_of(const ModelShape& shape) {
  return message(
      "heads ", shape.heads,
      shape.kv_heads == shape.heads ? std::string{} : message(" kv-heads ", shape.kv_heads),
      " head-dim ", shape.head_dim);
}

}  // namespace

void fail_if_nothing_runs(const Sweep& sweep) {
  std::vector<std::string> reasons;
  for (const Case& made : sweep.cases) {
    if (made.skip_reason.empty()) return;
    if (std::ranges::find(reasons, made.skip_reason) == reasons.end())
      reasons.push_back(made.skip_reason);
  }
  std::string text = reasons.front();
  for (std::size_t i = 1; i < reasons.size(); ++i) text += "\n  " + reasons[i];
  if (reasons.size() > 1) text = "no combination of the options can run:\n  " + text;
  throw InputError{text};
}

Sweep expand(const Options& options, int world_size) {
  Sweep sweep;
  for (const ShapeChoice& choice : shape_choices(options))
    for (const Split& split : splits(options, world_size))
      sweep.cases.push_back(make_case(options, choice, split, world_size));
  fail_if_nothing_runs(sweep);
  note_collapsed(options, world_size, sweep);
  note_padding(sweep);
  note_chunks(options, sweep);
  note_plans(options, sweep);
  return sweep;
}

void note_plans(const Options& options, Sweep& sweep) {
  const PlanChoice& plans = options.runner.plans;
  if (plans.algorithms.empty()) return;
  std::set<UsedCollective> used;
  for (const Case& made : sweep.cases) {
    const Parallel& parallel = made.layer.parallel;
    if (!made.skip_reason.empty() || parallel.num_ranks() == 1) continue;
    // The ranks of a stage do the same, those of other stages need not.
    const int ranks_per_stage = parallel.num_model_ranks() / parallel.pp.size;
    for (int stage = 0; stage < parallel.pp.size; ++stage) {
      LayerConfig layer = made.layer;
      layer.parallel = parallel.at(0, stage * ranks_per_stage);
      add_used_collectives(record_program(layer, made.phase, 1).ops, used);
    }
  }
  try {
    for (std::string& text : find_unplanned(plans, used)) sweep.notices.push_back(std::move(text));
  } catch (const InputError& error) {
    throw InputError{message("--algorithm ", error.what())};
  }
}

std::string shape_key(const Case& config) {
  const ModelShape& shape = config.layer.shape;
  std::string key =
      message(config.model, ' ', name_of(config.layer.block), ' ', name_of(config.phase), ' ',
              name_of(config.layer.dtype), ' ', shape.hidden, ' ', shape.heads, ' ', shape.kv_heads,
              ' ', shape.head_dim, ' ', shape.ffn, ' ', shape.layers, ' ', config.vocab_unpadded,
              ' ', shape.seq, ' ', shape.batch, ' ', shape.window);
  for (const std::int64_t length : shape.seqlens) key += message(' ', length);
  return key;
}

std::string describe_shape(const Case& config) {
  const LayerConfig& layer = config.layer;
  const ModelShape& shape = layer.shape;
  std::string text = message(config.model, config.model.empty() ? "" : " ", name_of(layer.block),
                             ' ', name_of(config.phase), ' ', name_of(layer.dtype), ' ',
                             layer.block == BlockKind::attention_core
                                 ? heads_of(shape)
                                 : message("hidden ", shape.hidden, particulars(config)),
                             " seq ", shape.seq);
  if (!shape.seqlens.empty()) text += message(" in ", shape.seqlens.size(), " sequences");
  if (shape.window > 0) text += message(" window ", shape.window);
  return text + message(" batch ", shape.batch);
}

std::string describe_split(const Parallel& parallel) {
  const ContextParallel& context = parallel.context;
  std::string text;
  if (context.is_split()) {
    text = message("cp ", context.cp.size, ' ', name_of(context.kind));
    if (context.kind == ContextKind::hybrid)
      text += message(' ', context.ulysses, context.ulysses_outer ? " outer" : " inner");
    if (context.kind != ContextKind::ulysses) text += message(' ', name_of(context.order));
    if (parallel.tp.size > 1) text += message(" tp ", parallel.tp.size);
  } else {
    text = message("tp ", parallel.tp.size);
  }
  return text + (parallel.sequence_parallel ? " sp" : "") + (parallel.overlap ? " overlap" : "");
}

std::string describe_pipeline(const Case& config) {
  const PipelineConfig& pipeline = config.layer.pipeline;
  if (config.layer.inference) return describe_inference(config);
  if (pipeline.schedule_name.empty()) return {};
  const Parallel& parallel = config.layer.parallel;
  std::string text = message(pipeline.schedule_name, " pp ", parallel.pp.size);
  if (pipeline.chunks > 1) text += message(" x ", pipeline.chunks, " chunks");
  text += message(" m ", pipeline.micro);
  if (parallel.dp.size > 1) text += message(" dp ", parallel.dp.size);
  if (config.p2p == "merged") text += " merged";
  if (config.balance != "count") text += message(" balance ", config.balance);
  if (config.layer.recompute != Recompute::none)
    text += message(" recompute ", name_of(config.layer.recompute));
  if (config.layer.tied_embeddings) text += " tied";
  return text;
}

std::string describe(const Case& config) {
  const std::string pipeline = describe_pipeline(config);
  return message(describe_shape(config), ' ', pipeline, pipeline.empty() ? "" : " ",
                 describe_split(config.layer.parallel));
}

}  // namespace shardmark::bench
