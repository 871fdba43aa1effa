#include "layers/shape.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace shardmark {
namespace {

void check_divides(const char* what, std::int64_t value, const char* by_what, std::int64_t by) {
  if (value % by == 0) return;
  const std::int64_t below = value / by * by;
  const std::string tries =
      below > 0 ? message("try ", below, " or ", below + by)
                : message("try ", what, ' ', by, " or ", by_what, ' ', value, " at most");
  throw InputError{
      message(what, ' ', value, " is not divisible by ", by_what, ' ', by, "; ", tries)};
}

void check_positive(const char* what, std::int64_t value) {
  if (value <= 0) throw InputError{message(what, " is ", value, "; it must be at least 1")};
}

/// "2 or 4": the divisors of `whole` next to `value`, below and above, that work.
template <class Works>
std::string nearest_divisors(std::int64_t value, std::int64_t whole, const Works& works) {
  const auto fits = [&](std::int64_t other) { return whole % other == 0 && works(other); };
  std::int64_t below = value - 1, above = value + 1;
  while (below > 1 && !fits(below)) --below;
  while (above <= whole && !fits(above)) ++above;
  return message(below, above <= whole ? message(" or ", above) : "");
}

/// Whether `degree` ranks can split `count` heads, or share each.
bool shares(std::int64_t count, std::int64_t degree) {
  return count % degree == 0 || degree % count == 0;
}

/// `by` ranks split `kv_heads` or share them; they split `heads`, and `by` divides `ranks`.
void check_shared(const char* what, std::int64_t kv_heads, std::int64_t heads, const char* by_what,
                  std::int64_t by, std::int64_t ranks) {
  if (shares(kv_heads, by)) return;
  const std::string counts =
      nearest_divisors(kv_heads, heads, [&](std::int64_t count) { return shares(count, by); });
  const std::string degrees = nearest_divisors(
      by, std::gcd(heads, ranks), [&](std::int64_t degree) { return shares(kv_heads, degree); });
  throw InputError{message(what, ' ', kv_heads, " neither divides nor is divisible by ", by_what,
                           ' ', by, "; try ", what, ' ', counts, ", or ", by_what, ' ', degrees)};
}

void check_kv_heads(const ModelShape& shape, std::int64_t tp) {
  if (shape.heads % shape.kv_heads != 0)
    throw InputError{message(
        "heads ", shape.heads, " is not divisible by kv_heads ", shape.kv_heads, "; try kv_heads ",
        nearest_divisors(shape.kv_heads, shape.heads,
                         [&](std::int64_t count) { return shares(count, tp); }))};
  check_shared("kv_heads", shape.kv_heads, shape.heads, "tp", tp, shape.heads);
}

void check_masks(const ModelShape& shape) {
  if (shape.window < 0)
    throw InputError{message("window is ", shape.window, "; it must be at least 1")};
  for (const std::int64_t length : shape.seqlens) check_positive("a packed sequence", length);
  const std::int64_t sum =
      std::accumulate(shape.seqlens.begin(), shape.seqlens.end(), std::int64_t{0});
  if (!shape.seqlens.empty() && sum != shape.seq)
    throw InputError{
        message("seqlens add up to ", sum, ", not to seq ", shape.seq, "; try seq ", sum)};
}

void check_degree(const ContextParallel& context) {
  if (context.ulysses >= 1 && context.cp.size % context.ulysses == 0) return;
  int nearest = std::clamp(context.ulysses, 1, context.cp.size);
  while (context.cp.size % nearest != 0) --nearest;
  throw InputError{message("ulysses ", context.ulysses, " does not divide cp ", context.cp.size,
                           "; try ", nearest)};
}

void check_context(const LayerConfig& config) {
  const ContextParallel& context = config.parallel.context;
  if (config.block == BlockKind::model)
    throw InputError{
        message("a model is not offered with cp ", context.cp.size, "; try scope block, or cp 1")};
  if (context.kind == ContextKind::hybrid) check_degree(context);
  const std::int64_t unit = token_unit(config.parallel);
  const std::int64_t below = config.shape.seq / unit * unit;
  if (below != config.shape.seq)
    throw InputError{message("seq ", config.shape.seq, " does not split over cp ", context.cp.size,
                             " in ", name_of(context.order), " order",
                             config.parallel.sequence_parallel ? " with SP" : "",
                             ": it must be a multiple of ", unit, "; try ",
                             below > 0 ? message(below, " or ") : "", below + unit)};
  if (!has_attention(config.block)) return;
  const std::int64_t tp = config.parallel.tp.size, degree = context.ulysses_size();
  const std::int64_t heads = config.shape.heads / tp;
  check_divides(tp == 1 ? "heads" : "heads per tp rank", heads, "the Ulysses degree", degree);
  check_shared(tp == 1 ? "kv_heads" : "kv_heads per tp rank", config.local_kv_heads(), heads,
               "the Ulysses degree", degree,
               context.kind == ContextKind::hybrid ? context.cp.size : heads);
}

void check_recompute(const LayerConfig& config) {
  if (config.recompute == Recompute::none) return;
  for (const auto& steps : config.pipeline.schedule->ranks)
    for (const pipeline::Step& step : steps)
      pipeline::for_each_action(step, [&](const pipeline::Action& action) {
        if (action.act != pipeline::Act::W) return;
        throw InputError{message("recompute ", name_of(config.recompute), ": ",
                                 config.pipeline.schedule_name, " has weight gradients apart (",
                                 to_text(action),
                                 "), until which everything would have to stay: nothing is saved; "
                                 "try recompute none, or gpipe, 1f1b or interleaved")};
      });
}

/// Splits of a pipeline are checked where they are made; here they only have to fit each other.
void check_pipeline(const LayerConfig& config) {
  const PipelineConfig& pipeline = config.pipeline;
  const pipeline::Schedule& schedule = *pipeline.schedule;
  if (config.block != BlockKind::model)
    throw InputError{
        message("a pipeline runs a model, not scope ", name_of(config.block), "; try scope model")};
  SHARDMARK_CHECK(schedule.num_ranks() == config.parallel.pp.size, "a schedule for ",
                  schedule.num_ranks(), " ranks on pp ", config.parallel.pp.size);
  SHARDMARK_CHECK(schedule.num_micro == pipeline.micro, "a schedule for ", schedule.num_micro,
                  " micro-batches with ", pipeline.micro);
  const std::vector<std::int64_t>& blocks = pipeline.blocks;
  SHARDMARK_CHECK(blocks.size() == static_cast<std::size_t>(schedule.num_stages), "a schedule of ",
                  schedule.num_stages, " stages with blocks for ", blocks.size());
  SHARDMARK_CHECK(std::ranges::all_of(blocks, [](std::int64_t count) { return count > 0; }),
                  "a stage without blocks");
  SHARDMARK_CHECK(
      std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}) == config.shape.layers,
      "the stages' blocks do not add up to ", config.shape.layers, " layers");
  check_recompute(config);
}

void check_inference(const LayerConfig& config) {
  const InferenceConfig& run = *config.inference;
  check_positive("requests", run.requests);
  check_positive("tokens", run.tokens);
  constexpr std::int64_t most_passes = 100'000;  // all are recorded, and run one after another
  if (std::int64_t{run.requests} * run.tokens > most_passes)
    throw InputError{message("requests ", run.requests, " x tokens ", run.tokens,
                             " make more than ", most_passes,
                             " passes in an iteration; lower one of them: their times are alike")};
  if (config.block != BlockKind::model)
    throw InputError{
        message("inference runs a model, not scope ", name_of(config.block), "; try scope model")};
  if (config.parallel.sequence_parallel)
    throw InputError{
        "inference is not offered with sequence parallelism: a decode step has one token of a "
        "sequence to split; leave it off"};
  if (config.parallel.dp.size > 1)
    throw InputError{message("inference on dp ", config.parallel.dp.size,
                             ": its copies share nothing, so one says it all; try dp 1")};
}

/// What ranks sum after their weight gradients would hold earlier micro-batches again; a pipeline
/// sums over tp once, behind the last one.
void check_accumulation(const LayerConfig& config) {
  const std::int64_t tp = config.parallel.tp.size, kv_heads = config.shape.kv_heads;
  const int cp = config.parallel.context.cp.size;
  const auto refuse = [](const std::string& what, const std::string& way_out) {
    throw InputError{message(what,
                             " in every backward pass, but gradients of micro-batches add up "
                             "and would be summed again; ",
                             way_out)};
  };
  if (config.parallel.context.is_split())
    refuse(message("cp ", cp, " sums the weight gradients"), "try cp 1");
  if (config.is_pipeline()) return;
  const bool has_norms = config.block == BlockKind::block || config.block == BlockKind::model;
  if (has_norms && config.parallel.sequence_parallel && tp > 1)
    refuse(message("--sp with tp ", tp, " sums the gradients of norms"),
           "leave out --sp, or try tp 1");
  if (has_attention(config.block) && kv_heads % tp != 0)
    refuse(
        message("tp ", tp, " with kv_heads ", kv_heads, " sums the gradients of shared KV heads"),
        message("try kv_heads ", tp, " or a multiple of it, or tp ", kv_heads));
}

}  // namespace

std::string_view name_of(MlpKind kind) { return kind == MlpKind::swiglu ? "swiglu" : "gelu"; }
std::string_view name_of(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }
std::string_view name_of(GeluKind kind) { return kind == GeluKind::tanh ? "tanh" : "erf"; }
std::string_view name_of(Positions positions) {
  static constexpr std::array<std::string_view, 3> names{"none", "rotary", "learned"};
  return names[static_cast<std::size_t>(positions)];
}
std::string_view name_of(Recompute recompute) {
  static constexpr std::array<std::string_view, 3> names{"none", "selective", "full"};
  return names[static_cast<std::size_t>(recompute)];
}
std::string_view name_of(InferenceStep step) {
  static constexpr std::array<std::string_view, 2> names{"prefill", "decode"};
  return names[static_cast<std::size_t>(step)];
}
std::string_view name_of(BlockKind kind) {
  static constexpr std::array<std::string_view, 7> names{
      "linear-column", "linear-row", "mlp", "attention", "block", "model", "attention-core"};
  return names[static_cast<std::size_t>(kind)];
}

bool has_attention(BlockKind block) {
  return block == BlockKind::attention || block == BlockKind::block || block == BlockKind::model ||
         block == BlockKind::attention_core;
}

std::vector<std::int64_t> ModelShape::starts() const {
  std::vector<std::int64_t> starts;
  std::int64_t next = 0;
  for (const std::int64_t length : seqlens) {
    starts.push_back(next);
    next += length;
  }
  return starts;
}

std::int64_t LayerConfig::local_kv_heads() const {
  return std::max<std::int64_t>(1, shape.kv_heads / parallel.tp.size);
}

std::int64_t token_unit(const Parallel& parallel) {
  const ContextParallel& context = parallel.context;
  const std::int64_t parts = context.cp.size / context.ulysses_size();
  const bool zigzag = context.order == TokenOrder::zigzag && parts > 1;
  const std::int64_t tp = parallel.sequence_parallel ? parallel.tp.size : 1;
  return std::lcm(zigzag ? 2 * parts : parts, context.cp.size * tp);
}

void check_divisible(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t tp = config.parallel.tp.size;
  check_positive("hidden", shape.hidden);
  check_positive("heads", shape.heads);
  check_positive("kv_heads", shape.kv_heads);
  check_positive("ffn", shape.ffn);
  check_positive("layers", shape.layers);
  check_positive("vocab", shape.vocab);
  check_positive("seq", shape.seq);
  check_positive("batch", shape.batch);
  const auto uses = [&](std::initializer_list<BlockKind> kinds) {
    for (const BlockKind kind : kinds)
      if (config.block == kind) return true;
    return false;
  };
  if (uses({BlockKind::linear_column, BlockKind::linear_row, BlockKind::mlp, BlockKind::block,
            BlockKind::model}))
    check_divides("ffn", shape.ffn, "tp", tp);
  if (uses({BlockKind::attention, BlockKind::block, BlockKind::model}))
    check_divides("hidden", shape.hidden, "tp", tp);
  if (has_attention(config.block)) {
    check_divides("heads", shape.heads, "tp", tp);
    check_kv_heads(shape, tp);
  }
  if (config.block == BlockKind::model) check_divides("vocab", shape.vocab, "tp", tp);
  if (config.block == BlockKind::attention_core)
    check_divides("kv_heads", shape.kv_heads, "tp", tp);
  check_masks(shape);
  if (config.parallel.context.is_split())
    check_context(config);
  else if (config.parallel.sequence_parallel)
    check_divides("seq", shape.seq, "tp", tp);
  if (shape.positions == Positions::rotary) check_divides("head_dim", shape.head_dim, "", 2);
  if (config.is_pipeline()) check_pipeline(config);
  if (config.inference) check_inference(config);
  if ((config.accumulate_gradients || config.is_pipeline()) &&
      config.block != BlockKind::attention_core)
    check_accumulation(config);
}

int usable_chunks(std::int64_t tokens, int tp, bool sequence_parallel, int wanted) {
  const std::int64_t share = sequence_parallel ? tokens / tp : tokens;
  int chunks = wanted;
  while (chunks > 1 && share % chunks != 0) --chunks;
  return chunks;
}

}  // namespace shardmark
