#pragma once

// Attention between the projections: q, k and v of this rank's tokens and heads in, o of the same
// out, with whatever exchange between ranks the split of the sequence needs. One implementation per
// ContextKind: local_attention, ring_attention, gather_attention, ulysses_attention.

#include "core/functions.hpp"
#include "layers/context.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace shardmark {

/// Column blocks of query, key and value heads, or their gradients: rows are the batch's sequences
/// one after another, each as this rank holds it.
struct Heads {
  Tensor q, k, v;
};

/// What an attention core works on, on this rank.
struct AttentionConfig {
  std::int64_t batch{1}, seq{1};                    ///< seq: of the whole sequence
  std::int64_t heads{1}, kv_heads{1}, head_dim{1};  ///< of this rank: its share under TP
  bool causal{true};
  std::int64_t window{0};
  std::vector<std::int64_t> starts{};  ///< of packed sequences, see Visibility; none: one sequence
  DType dtype{DType::f32};
  ContextParallel context{};
  bool overlap{false};  ///< exchange behind compute; otherwise each waits for the other
  /// Local attention only: tokens of each sequence before the queries', whose keys and values come
  /// in front of theirs.
  std::int64_t past{0};
};

/// Immutable; what a micro-batch needs between forward and backward is in its State. Communication
/// runs on Lane::cp, compute on Lane::compute; the caller's tensors are never written but for o and
/// the gradients. Every member of the cp group makes the same calls.
class AttentionCore {
 public:
  class State {
   public:
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
  };

  AttentionCore() = default;
  AttentionCore(const AttentionCore&) = delete;
  AttentionCore& operator=(const AttentionCore&) = delete;
  virtual ~AttentionCore() = default;

  /// Log-sum-exps and whatever else is kept or used as scratch.
  [[nodiscard]] virtual std::unique_ptr<State> make_state(Rank& rank) const = 0;
  /// o = attention of `in`; o has the config's dtype.
  virtual void forward(Rank& rank, State& state, const Heads& in, const Tensor& o) const = 0;
  /// Overwrites the gradients, from those of o; `in` and o are as forward saw and left them.
  virtual void backward(Rank& rank, State& state, const Heads& in, const Tensor& o,
                        const Tensor& d_o, const Heads& gradients) const = 0;
};

/// The core for `config.context`: the local one where the sequence is not split.
[[nodiscard]] std::unique_ptr<AttentionCore> make_attention_core(const AttentionConfig& config);

/// No exchange: one op over all tokens that this rank holds.
[[nodiscard]] std::unique_ptr<AttentionCore> make_local_attention(const AttentionConfig& config);
/// K and V of every part of the ring group travel from rank to rank.
[[nodiscard]] std::unique_ptr<AttentionCore> make_ring_attention(const AttentionConfig& config);
/// K and V are gathered over the ring group.
[[nodiscard]] std::unique_ptr<AttentionCore> make_gather_attention(const AttentionConfig& config);
/// All-to-alls over the Ulysses group around an inner core: local, or a ring for `hybrid`.
[[nodiscard]] std::unique_ptr<AttentionCore> make_ulysses_attention(const AttentionConfig& config);

/// The shape of an op on some of the config's tokens; its `starts` are the config's, which must
/// outlive the op.
[[nodiscard]] AttentionShape attention_shape(const AttentionConfig& config, const Places& queries,
                                             const Places& keys);

}  // namespace shardmark
