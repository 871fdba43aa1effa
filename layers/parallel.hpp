#pragma once

#include "core/functions.hpp"
#include "layers/context.hpp"
#include "layers/named_tensor.hpp"

#include <cstdint>
#include <vector>

namespace shardmark {

/// How the layers of one model are split and overlapped.
///
/// Sequence parallelism: outside of the linears a rank holds only its share of the tokens. The
/// share is block-cyclic: the T tokens are cut into `chunks` equal chunks and each rank owns its
/// 1/tp of every chunk. So a chunk's all-gather or reduce-scatter is one contiguous piece of both
/// the full and the local tensor, and every buffer keeps the natural token order. With chunks = 1
/// this is the usual contiguous split.
///
/// Overlap: communication of one chunk runs on the tp lane behind the matmul of the next; without
/// it there is one chunk and the compute lane waits for each communication at once.
///
/// Context parallelism (context.hpp) splits the sequences first: the T tokens above are then those
/// of this rank's cp position, and tensor parallelism splits each position's work.
///
/// Pipeline parallelism (pipeline_program.hpp) cuts the model between blocks, and data parallelism
/// repeats it: outermost, so that neighbours share a tp group first.
struct Parallel {
  Group dp{Axis::dp}, pp{Axis::pp};
  Group tp{};
  ContextParallel context{};
  bool sequence_parallel{false};
  bool overlap{false};
  int chunks{1};              ///< token chunks; 1 unless overlap
  bool keep_gathered{false};  ///< SP: keep the gathered input for backward instead of re-gathering

  /// Ranks that hold one copy of the model, tp innermost.
  [[nodiscard]] int num_model_ranks() const { return pp.size * context.cp.size * tp.size; }
  /// The same of all copies that are trained together.
  [[nodiscard]] int num_ranks() const { return dp.size * num_model_ranks(); }
  /// World rank of the rank whose view this is.
  [[nodiscard]] int world_rank() const { return tp.world_rank(tp.position); }
  /// The view of member `member` of the copies that begin at world rank `first`.
  [[nodiscard]] Parallel at(int first, int member) const;
  [[nodiscard]] std::int64_t local_tokens(std::int64_t tokens) const {
    return sequence_parallel ? tokens / tp.size : tokens;
  }
};

/// A layer's part of a backward pass. Zero-bubble schedules run `input` and `weight` apart;
/// otherwise `both` lets the weight gradient hide the input gradient's communication.
enum class Part : std::uint8_t { input, weight, both };
[[nodiscard]] constexpr bool has_input(Part part) { return part != Part::weight; }
[[nodiscard]] constexpr bool has_weight(Part part) { return part != Part::input; }

/// The input-gradient half of a layer's backward pass; the layer keeps what the other half needs.
template <class Layer>
Tensor backward_input(Rank& rank, const Layer& layer, typename Layer::State& state,
                      const Tensor& dy) {
  return layer.backward(rank, state, dy, Part::input);
}
/// The weight-gradient half; comes after backward_input of the same state.
template <class Layer>
void backward_weight(Rank& rank, const Layer& layer, typename Layer::State& state) {
  (void)layer.backward(rank, state, Tensor{}, Part::weight);
}

/// Two buffers of all tokens that the layers of a rank share under sequence parallelism: one for
/// gathered tensors, one for partial sums. Each is in use only within one layer call, so re-gather
/// needs no memory per layer.
struct TokenScratch {
  Buffer gathered, partial;
};
[[nodiscard]] TokenScratch make_token_scratch(Rank& rank, const Parallel& parallel,
                                              const Shape& full, DType dtype);

/// Chunk `chunk` of a tensor that holds all tokens or, equally, of one that holds the local share.
[[nodiscard]] Tensor token_chunk(const Parallel& parallel, const Tensor& x, int chunk);

/// SP: all-gathers x_local into x_full on the tp lane, chunk by chunk, after what the compute lane
/// has been given so far. Returns a fence per chunk, in order.
[[nodiscard]] std::vector<Fence> gather_chunks(Rank& rank, const Parallel& parallel,
                                               const Tensor& x_local, const Tensor& x_full);
/// The same with one fence for all.
[[nodiscard]] Fence gather_tokens(Rank& rank, const Parallel& parallel, const Tensor& x_local,
                                  const Tensor& x_full);
/// Sums chunk `chunk` of the ranks' partial results on the tp lane after the compute lane has made
/// it. SP: reduce-scatter into out_local. Otherwise all-reduce in place (out_local is partial).
/// Nothing to do with a single rank.
void reduce_chunk(Rank& rank, const Parallel& parallel, const Tensor& partial,
                  const Tensor& out_local, int chunk);
/// A gradient that every rank needs whole: all-reduced on the tp lane. Nothing in the backward pass
/// reads it, so with overlap no lane waits; it is there after synchronize.
void reduce_gradient(Rank& rank, const Parallel& parallel, const Tensor& gradient);

/// A tensor of per-token rows as the tp ranks hold it: the whole of it, or a sequence part under
/// SP.
[[nodiscard]] NamedTensor token_tensor(const Parallel& parallel, std::string name,
                                       const Tensor& local, std::int64_t tokens, Role role,
                                       std::string formula = {}, Init init = {});
/// A tensor of all tokens whose columns are the parts' shares.
[[nodiscard]] NamedTensor column_tensor(std::string name, const Tensor& tensor, Role role,
                                        std::vector<ShardPart> parts, std::string formula = {});

}  // namespace shardmark
