#include "bench/context/sweep.hpp"

#include "bench/harness/shapes.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

namespace shardmark::bench::context {
namespace {

/// A split of one shape.
struct Split {
  int tp{1}, cp{1};
  ContextKind kind{ContextKind::ring};
  TokenOrder order{TokenOrder::contiguous};
  int ulysses{1};
  bool ulysses_outer{false};
  bool sequence_parallel{false}, overlap{false};
};

std::vector<Split> splits(const Options& options, int world_size) {
  std::vector<Split> list;
  for (const int tp : tp_degrees(options))
    for (const int cp : cp_degrees(options, tp, world_size))
      for (const ContextKind kind : options.kinds)
        for (const TokenOrder order : options.orders)
          for (const bool sequence_parallel : options.base.sequence_parallel)
            for (const bool overlap : options.base.overlap)
              list.push_back({tp, cp, kind, order, options.ulysses, options.ulysses_outer,
                              sequence_parallel, overlap});
  return list;
}

/// The same program under its simplest name.
Split canonical(Split split, BlockKind block) {
  if (split.kind == ContextKind::hybrid && split.ulysses == split.cp)
    split.kind = ContextKind::ulysses;
  if (split.kind == ContextKind::hybrid && split.ulysses == 1) split.kind = ContextKind::ring;
  if (split.kind != ContextKind::hybrid) {
    split.ulysses = 1;
    split.ulysses_outer = false;
  }
  if (split.cp == 1) split.kind = ContextKind::ring;
  if (split.cp == 1 || split.kind == ContextKind::ulysses) split.order = TokenOrder::contiguous;
  const bool tp_communicates = split.tp > 1 && block != BlockKind::attention_core;
  if (!tp_communicates) split.sequence_parallel = false;
  if (!tp_communicates && split.cp == 1) split.overlap = false;
  return split;
}

struct Shape {
  ShapeChoice choice;
  std::int64_t head_dim{0}, window{0};
};

std::vector<Shape> shapes(const Options& options) {
  const auto or_none = [](const std::vector<std::int64_t>& values) {
    return values.empty() ? std::vector<std::int64_t>{0} : values;
  };
  std::vector<Shape> list;
  for (const std::int64_t head_dim : or_none(options.head_dim))
    for (const std::int64_t window : or_none(options.window))
      for (const ShapeChoice& choice : shape_choices(options.base))
        list.push_back({choice, head_dim, window});
  return list;
}

std::int64_t given_or(std::int64_t given, std::int64_t otherwise) {
  return given > 0 ? given : otherwise;
}

ModelShape shape_of(const Options& options, const Shape& wanted) {
  const ShapeChoice& choice = wanted.choice;
  const bool alone = choice.block == BlockKind::attention_core;
  ModelShape shape;
  shape.heads = given_or(choice.heads, 8);
  shape.kv_heads = given_or(choice.kv_heads, shape.heads);
  const std::int64_t narrowed = std::max<std::int64_t>(1, choice.hidden / shape.heads);
  shape.head_dim = given_or(wanted.head_dim, choice.hidden > 0 && !alone ? narrowed : 128);
  shape.hidden = shape.query_width();
  if (!alone) shape.hidden = given_or(choice.hidden, shape.hidden);
  shape.ffn = 4 * shape.hidden;
  if (!alone) shape.ffn = given_or(choice.ffn, shape.ffn);
  shape.seqlens = options.seqlens;
  const std::int64_t packed =
      std::accumulate(shape.seqlens.begin(), shape.seqlens.end(), std::int64_t{0});
  shape.seq = given_or(choice.seq, given_or(packed, 2048));
  shape.batch = given_or(choice.batch, 1);
  shape.window = wanted.window;
  shape.mlp = options.base.mlp.value_or(shape.mlp);
  shape.gelu = options.base.gelu.value_or(shape.gelu);
  shape.norm = options.base.norm.value_or(shape.norm);
  shape.positions = options.base.positions.value_or(shape.positions);
  shape.biases = options.base.biases.value_or(shape.biases);
  shape.causal = options.base.causal.value_or(shape.causal);
  return shape;
}

void check_world(const Split& split, int world_size) {
  const int ranks = split.cp * split.tp;
  if (ranks > world_size)
    throw InputError{message("cp ", split.cp, " x tp ", split.tp, " needs ", ranks,
                             " ranks, but there are ", world_size, "; start more (mpirun -n ",
                             ranks, ", or --ranks ", ranks,
                             " with --transport threads) or lower --cp")};
  if (world_size % ranks == 0) return;
  int lower = ranks;
  while (lower > 0 && world_size % lower != 0) lower -= split.tp;
  const int higher = (world_size / split.tp) * split.tp;
  throw InputError{lower > 0 && world_size % higher == 0
                       ? message("cp ", split.cp, " x tp ", split.tp, " does not divide the ",
                                 world_size, " ranks; try cp ", lower / split.tp, " or ",
                                 higher / split.tp)
                       : message("tp ", split.tp, " does not divide the ", world_size,
                                 " ranks; start ", ranks, " or ", 2 * ranks)};
}

Case make_case(const Options& options, const Shape& wanted, const Split& split, int world_size,
               bool must_fit) {
  Case made;
  made.phase = wanted.choice.phase;
  LayerConfig& layer = made.layer;
  layer.block = wanted.choice.block;
  layer.dtype = wanted.choice.dtype;
  layer.shape = shape_of(options, wanted);
  Parallel& parallel = layer.parallel;
  parallel.tp.size = split.tp;
  parallel.sequence_parallel = split.sequence_parallel;
  parallel.overlap = split.overlap;
  ContextParallel& context = parallel.context;
  context.cp.size = split.cp;
  context.kind = split.kind;
  context.order = split.order;
  context.ulysses = split.ulysses;
  context.ulysses_outer = split.ulysses_outer;
  parallel = parallel.at(0, 0);
  try {
    check_magnitude(layer);
    if (must_fit) check_world(split, world_size);
    check_divisible(layer);
    if (!split.overlap) return made;
    context.head_chunks = options.base.overlap_chunks;
    context.head_chunks =
        context.usable_head_chunks(layer.shape.heads / split.tp, layer.local_kv_heads());
    if (split.tp > 1 && layer.block == BlockKind::block)
      parallel.chunks = usable_chunks(layer.shape.tokens() / split.cp, split.tp,
                                      split.sequence_parallel, options.base.overlap_chunks);
  } catch (const InputError& error) {
    made.skip_reason = error.what();
  }
  return made;
}

void note_collapsed(const Options& options, Sweep& sweep) {
  const bool has_cp_1 = std::ranges::any_of(
      sweep.cases, [](const Case& made) { return !made.layer.parallel.context.is_split(); });
  const bool has_ulysses = std::ranges::any_of(sweep.cases, [](const Case& made) {
    const ContextParallel& context = made.layer.parallel.context;
    return context.is_split() && context.kind == ContextKind::ulysses;
  });
  const std::size_t variants =
      options.kinds.size() * options.orders.size() * options.base.overlap.size();
  if (has_cp_1 && variants > 1)
    sweep.notices.push_back(message("cp 1 exchanges nothing: its ", variants,
                                    " variants of kind, order and overlap are one row"));
  if (has_ulysses && options.orders.size() > 1)
    sweep.notices.push_back(message("ulysses gives every rank all tokens: its ",
                                    options.orders.size(),
                                    " orders are one row, shown as contiguous"));
  else if (has_ulysses && options.orders.front() != TokenOrder::contiguous)
    sweep.notices.push_back(message("ulysses gives every rank all tokens: --order ",
                                    name_of(options.orders.front()),
                                    " is not for it, its rows run contiguous"));
  const bool has_hybrid =
      std::ranges::find(options.kinds, ContextKind::hybrid) != options.kinds.end();
  const bool is_whole = std::ranges::any_of(sweep.cases, [&](const Case& made) {
    return made.layer.parallel.context.cp.size == options.ulysses;
  });
  if (has_hybrid && is_whole && options.ulysses > 1)
    sweep.notices.push_back(message("hybrid with all ", options.ulysses,
                                    " ranks in one Ulysses group is ulysses, and shown so"));
}

void note_chunks(const Options& options, Sweep& sweep) {
  std::set<std::string> seen;
  for (const Case& made : sweep.cases) {
    const ContextParallel& context = made.layer.parallel.context;
    if (!made.layer.parallel.overlap || !made.skip_reason.empty() || !context.is_split() ||
        context.kind == ContextKind::ring || context.head_chunks == options.base.overlap_chunks)
      continue;
    const ModelShape& shape = made.layer.shape;
    std::string text =
        message(shape.heads, " heads with ", shape.kv_heads, " KV heads travel at cp ",
                context.cp.size, ' ', name_of(context.kind), " in ", context.head_chunks,
                context.head_chunks == 1 ? " chunk: " : " chunks: ", options.base.overlap_chunks,
                context.kind == ContextKind::hybrid
                    ? " do not divide them so that none shares a KV head with another"
                    : " do not divide them evenly");
    if (seen.insert(text).second) sweep.notices.push_back(std::move(text));
  }
}

/// Without --cp a row at cp 1 stands beside what was asked for, and is not enough alone.
void fail_if_nothing_splits(const Options& options, const Sweep& sweep) {
  if (!options.cp.empty()) return;
  Sweep split;
  std::ranges::copy_if(sweep.cases, std::back_inserter(split.cases),
                       [](const Case& made) { return made.layer.parallel.context.is_split(); });
  if (!split.cases.empty()) fail_if_nothing_runs(split);
}

}  // namespace

Sweep expand(const Options& options, int world_size, bool must_fit) {
  Sweep sweep;
  std::set<std::string> seen;
  for (const Shape& shape : shapes(options))
    for (const Split& split : splits(options, world_size)) {
      Case made =
          make_case(options, shape, canonical(split, shape.choice.block), world_size, must_fit);
      if (seen.insert(shape_key(made) + ' ' + describe_split(made.layer.parallel)).second)
        sweep.cases.push_back(std::move(made));
    }
  fail_if_nothing_runs(sweep);
  fail_if_nothing_splits(options, sweep);
  note_collapsed(options, sweep);
  note_chunks(options, sweep);
  note_plans(options.base, sweep);
  return sweep;
}

}  // namespace shardmark::bench::context
