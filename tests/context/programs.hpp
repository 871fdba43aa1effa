#pragma once

// Blocks whose sequences are split over a cp group, for tests on recorded op lists and on values.

#include "core/error.hpp"
#include "layers/recording.hpp"

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::test {

/// A block on cp x tp ranks.
struct ContextCase {
  LayerConfig config;
  std::string_view mask{};

  [[nodiscard]] int ranks() const { return config.parallel.num_ranks(); }
  [[nodiscard]] Mesh mesh() const {
    return Mesh{{.cp = config.parallel.context.cp.size, .tp = config.parallel.tp.size}};
  }
  [[nodiscard]] LayerConfig on(int rank) const {
    LayerConfig layer = config;
    layer.parallel = config.parallel.at(0, rank);
    return layer;
  }
};

inline std::string describe(const ContextCase& c) {
  const Parallel& parallel = c.config.parallel;
  const ContextParallel& context = parallel.context;
  return message(name_of(c.config.block), ' ', name_of(context.kind), ' ', name_of(context.order),
                 " cp ", context.cp.size, " tp ", parallel.tp.size,
                 context.kind == ContextKind::hybrid ? message(" ulysses ", context.ulysses) : "",
                 context.ulysses_outer ? " outer" : "", parallel.sequence_parallel ? " sp" : "",
                 parallel.overlap ? " overlap" : "", " heads ", c.config.shape.heads, '/',
                 c.config.shape.kv_heads, ' ', c.mask, ' ', name_of(c.config.dtype));
}
inline std::ostream& operator<<(std::ostream& out, const ContextCase& c) {
  return out << describe(c);
}

/// Sets one of the masks that tests know by name.
inline void set_mask(ContextCase& c, std::string_view mask) {
  c.mask = mask;
  c.config.shape.causal = mask != "full";
  c.config.shape.window = mask == "window" ? 11 : 0;
  c.config.shape.seqlens.clear();
  if (mask == "packed") c.config.shape.seqlens = {5, 30, c.config.shape.seq - 35};
}

/// 8 query heads that 1, 2, 4 and 8 ranks split, or 6 for 3 ranks, and 48 tokens.
inline ContextCase context_case(BlockKind block, ContextKind kind, TokenOrder order, int cp,
                                int tp = 1) {
  ContextCase c;
  c.config.block = block;
  ModelShape& shape = c.config.shape;
  shape.heads = cp % 3 == 0 ? 6 : 8 * tp;
  shape.kv_heads = shape.heads;
  shape.head_dim = 8;
  shape.hidden = shape.heads * shape.head_dim;
  shape.ffn = 2 * shape.hidden;
  shape.seq = 48;
  shape.batch = 2;
  c.config.parallel.tp.size = tp;
  ContextParallel& context = c.config.parallel.context;
  context.cp.size = cp;
  context.kind = kind;
  context.order = order;
  context.ulysses = 2;
  set_mask(c, "causal");
  return c;
}

inline void set_overlap(ContextCase& c) {
  c.config.parallel.overlap = true;
  c.config.parallel.chunks = 2;
  c.config.parallel.context.head_chunks = 2;
}

/// All kinds in all orders that make a difference.
inline std::vector<ContextCase> all_kinds(BlockKind block,
                                          const std::vector<int>& degrees = {2, 3, 4, 8}) {
  std::vector<ContextCase> cases;
  for (const int cp : degrees)
    for (const TokenOrder order :
         {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped}) {
      cases.push_back(context_case(block, ContextKind::ring, order, cp));
      cases.push_back(context_case(block, ContextKind::all_gather, order, cp));
      if (order == TokenOrder::contiguous)
        cases.push_back(context_case(block, ContextKind::ulysses, order, cp));
      if (cp % 2 != 0) continue;
      cases.push_back(context_case(block, ContextKind::hybrid, order, cp));
      cases.push_back(cases.back());
      cases.back().config.parallel.context.ulysses_outer = true;
    }
  return cases;
}

/// What has to equal one rank: every kind and order on `cp` ranks with heads of their own, grouped
/// and one for all, under every mask, in f32 and bf16.
inline std::vector<ContextCase> all_variants(BlockKind block, int cp) {
  std::vector<ContextCase> cases;
  for (const ContextCase& c : all_kinds(block, {cp}))
    for (const std::string_view mask : {"full", "causal", "window", "packed"})
      for (const std::int64_t kv_heads :
           {c.config.shape.heads, c.config.shape.heads == 6 ? std::int64_t{3} : std::int64_t{2},
            std::int64_t{1}})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          cases.push_back(c);
          set_mask(cases.back(), mask);
          cases.back().config.shape.kv_heads = kv_heads;
          cases.back().config.dtype = dtype;
          // Overlap is for half of them: it changes the order of ops, not what they compute.
          if (cases.size() / 2 % 2 == 0) set_overlap(cases.back());
        }
  return cases;
}

/// The same with TP on top, with and without SP, on few ranks.
inline std::vector<ContextCase> all_kinds_with_tp(BlockKind block) {
  std::vector<ContextCase> cases;
  for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses, ContextKind::all_gather})
    for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped})
      for (const bool sp : {false, true})
        for (const bool overlap : {false, true}) {
          if (kind == ContextKind::ulysses && order != TokenOrder::contiguous) continue;
          ContextCase c = context_case(block, kind, order, 2, 2);
          c.config.parallel.sequence_parallel = sp;
          if (overlap) set_overlap(c);
          cases.push_back(c);
        }
  ContextCase hybrid = context_case(block, ContextKind::hybrid, TokenOrder::zigzag, 4, 2);
  hybrid.config.parallel.sequence_parallel = true;
  set_overlap(hybrid);
  cases.push_back(hybrid);
  return cases;
}

}  // namespace shardmark::test
