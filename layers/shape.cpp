#include "layers/shape.hpp"

#include "core/error.hpp"

#include <array>

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

void check_kv_heads(const ModelShape& shape, std::int64_t tp) {
  if (shape.heads % shape.kv_heads != 0) {
    std::int64_t nearest = shape.kv_heads;
    while (shape.heads % nearest != 0) --nearest;
    throw InputError{message("heads ", shape.heads, " is not divisible by kv_heads ",
                             shape.kv_heads, "; try kv_heads ", nearest)};
  }
  if (shape.kv_heads % tp == 0 || tp % shape.kv_heads == 0) return;
  throw InputError{message("kv_heads ", shape.kv_heads, " neither divides nor is divisible by tp ",
                           tp, "; try kv_heads ", tp, " or tp ", shape.kv_heads)};
}

}  // namespace

std::string_view name_of(MlpKind kind) { return kind == MlpKind::swiglu ? "swiglu" : "gelu"; }
std::string_view name_of(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }
std::string_view name_of(GeluKind kind) { return kind == GeluKind::tanh ? "tanh" : "erf"; }
std::string_view name_of(Positions positions) {
  static constexpr std::array<std::string_view, 3> names{"none", "rotary", "learned"};
  return names[static_cast<std::size_t>(positions)];
}
std::string_view name_of(BlockKind kind) {
  static constexpr std::array<std::string_view, 6> names{"linear-column", "linear-row", "mlp",
                                                         "attention",     "block",      "model"};
  return names[static_cast<std::size_t>(kind)];
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
  if (uses({BlockKind::attention, BlockKind::block, BlockKind::model})) {
    check_divides("hidden", shape.hidden, "tp", tp);
    check_divides("heads", shape.heads, "tp", tp);
    check_kv_heads(shape, tp);
  }
  if (config.block == BlockKind::model) check_divides("vocab", shape.vocab, "tp", tp);
  if (config.parallel.sequence_parallel) check_divides("seq", shape.seq, "tp", tp);
  if (shape.positions == Positions::rotary) check_divides("head_dim", shape.head_dim, "", 2);
}

int usable_chunks(std::int64_t tokens, int tp, bool sequence_parallel, int wanted) {
  const std::int64_t share = sequence_parallel ? tokens / tp : tokens;
  int chunks = wanted;
  while (chunks > 1 && share % chunks != 0) --chunks;
  return chunks;
}

}  // namespace shardmark
