#pragma once

// Attention cores in tests: the cases they are tried on, and one rank's program around a core.

#include "core/error.hpp"
#include "layers/attention_core.hpp"

#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::test {

/// Who sees whom.
struct Mask {
  std::string_view name;
  bool causal{false};
  std::int64_t window{0};
  std::vector<std::int64_t> starts{};
};
inline const std::vector<Mask>& all_masks() {
  static const std::vector<Mask> masks{{"full"},
                                       {"causal", true},
                                       {"window", true, 9},
                                       {"band", false, 5},
                                       {"packed", true, 0, {0, 7, 30}},
                                       {"packed_full", false, 0, {0, 20}}};
  return masks;
}
inline constexpr TokenOrder all_orders[] = {TokenOrder::contiguous, TokenOrder::zigzag,
                                            TokenOrder::striped};

/// A core on `ranks` ranks.
struct CoreCase {
  AttentionConfig config;
  int ranks{1};
  std::string_view mask{};

  [[nodiscard]] AttentionConfig on(const Group& cp) const {
    AttentionConfig one = config;
    one.context.cp = cp;
    return one;
  }
  /// The same attention on one rank.
  [[nodiscard]] AttentionConfig serial() const {
    AttentionConfig whole = config;
    whole.context = {};
    return whole;
  }
};
inline CoreCase core_case(ContextKind kind, TokenOrder order, int ranks, const Mask& mask,
                          bool overlap) {
  CoreCase result{{}, ranks, mask.name};
  result.config = {.batch = 2,
                   .seq = 48,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .causal = mask.causal,
                   .window = mask.window,
                   .starts = mask.starts,
                   .overlap = overlap};
  result.config.context.kind = kind;
  result.config.context.order = order;
  return result;
}
inline std::string describe(const CoreCase& c) {
  const ContextParallel& context = c.config.context;
  return message(name_of(context.kind), ' ', name_of(context.order), " on ", c.ranks, ' ', c.mask,
                 c.config.overlap ? " overlap" : "", " heads ", c.config.heads, '/',
                 c.config.kv_heads, ' ', name_of(c.config.dtype), " batch ", c.config.batch);
}
inline std::ostream& operator<<(std::ostream& out, const CoreCase& c) { return out << describe(c); }

/// A core with its tensors on one rank. q, k, v are column blocks of one tensor, as behind a fused
/// projection, and so are their gradients.
class CoreProgram {
 public:
  CoreProgram(Rank& rank, const AttentionConfig& config)
      : rank_{rank}, core_{make_attention_core(config)}, state_{core_->make_state(rank)} {
    const std::int64_t rows = config.batch * config.context.local_places(config.seq).count();
    const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
    qkv = rank.allocate({rows, q + 2 * kv}, config.dtype, Category::activation);
    o = rank.allocate({rows, q}, config.dtype, Category::activation);
    d_o = rank.allocate({rows, q}, config.dtype, Category::gradient);
    dqkv = rank.allocate({rows, q + 2 * kv}, config.dtype, Category::gradient);
    const auto heads = [&](const Tensor& fused) {
      return Heads{fused.column_block(0, q), fused.column_block(q, kv),
                   fused.column_block(q + kv, kv)};
    };
    in_ = heads(qkv.tensor());
    gradients_ = heads(dqkv.tensor());
  }
  void forward() { core_->forward(rank_, *state_, in_, o.tensor()); }
  void backward() { core_->backward(rank_, *state_, in_, o.tensor(), d_o.tensor(), gradients_); }

  Buffer qkv, o, d_o, dqkv;

 private:
  Rank& rank_;
  std::unique_ptr<AttentionCore> core_;
  std::unique_ptr<AttentionCore::State> state_;
  Heads in_, gradients_;
};

}  // namespace shardmark::test
