#pragma once

#include "core/ops.hpp"
#include "layers/parallel.hpp"
#include "layers/pipeline/schedule.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shardmark {

enum class MlpKind : std::uint8_t { gelu, swiglu };
enum class Positions : std::uint8_t { none, rotary, learned };
[[nodiscard]] std::string_view name_of(MlpKind kind);
[[nodiscard]] std::string_view name_of(NormKind kind);
[[nodiscard]] std::string_view name_of(GeluKind kind);
[[nodiscard]] std::string_view name_of(Positions positions);

/// Global sizes and variants of a transformer; what a model preset fills in. Independent of how it
/// is split.
struct ModelShape {
  std::int64_t hidden{1024}, heads{8}, kv_heads{8}, head_dim{128}, ffn{4096}, layers{1};
  std::int64_t vocab{51200}, seq{1024}, batch{1};
  MlpKind mlp{MlpKind::gelu};
  GeluKind gelu{GeluKind::erf};
  NormKind norm{NormKind::layer};
  float norm_epsilon{1e-5F};
  Positions positions{Positions::none};
  float rope_theta{10000.0F};
  bool biases{true};
  bool causal{true};
  std::int64_t window{0};               ///< attention sees tokens less than this far; 0: all
  std::vector<std::int64_t> seqlens{};  ///< packed sequences, together `seq` tokens; none: one

  /// Where the packed sequences begin, for Visibility; empty: one sequence.
  [[nodiscard]] std::vector<std::int64_t> starts() const;
  /// All tokens of all ranks.
  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
  [[nodiscard]] std::int64_t query_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
  /// Column matrices in front of the activation: gate and up for SwiGLU.
  [[nodiscard]] std::int64_t mlp_inputs() const { return mlp == MlpKind::swiglu ? 2 : 1; }
};

/// What is run. `attention_core` is attention alone, on given q, k and v; `attention` has its
/// projections around it.
enum class BlockKind : std::uint8_t {
  linear_column,
  linear_row,
  mlp,
  attention,
  block,
  model,
  attention_core
};
[[nodiscard]] std::string_view name_of(BlockKind kind);
[[nodiscard]] bool has_attention(BlockKind block);

/// How a model is run as a pipeline over Parallel::pp. `ModelShape::batch` is that of one
/// micro-batch then, and an iteration has `micro` of them, whose gradients add up.
struct PipelineConfig {
  std::string schedule_name;  ///< "1f1b", or the file that it was read from
  int chunks{1};              ///< stages per rank
  int micro{1};
  /// Lowered and valid, for pp.size ranks. Null: no pipeline, or one that cannot run.
  std::shared_ptr<const pipeline::Schedule> schedule;
  std::vector<std::int64_t> blocks;  ///< transformer blocks of each stage, all of them shape.layers
};

/// What a backward pass runs again instead of keeping it: nothing, the attention core (its output
/// and log-sum-exps are not kept), or whole blocks (only their inputs are kept).
enum class Recompute : std::uint8_t { none, selective, full };
[[nodiscard]] std::string_view name_of(Recompute recompute);

/// What an inference step does for a request of `ModelShape::batch` sequences: prefill runs the
/// `seq` tokens of its prompt; decode runs one more token of each sequence, which sees `seq` cached
/// ones and itself.
enum class InferenceStep : std::uint8_t { prefill, decode };
[[nodiscard]] std::string_view name_of(InferenceStep step);

/// Forward passes of requests through the stages of a pipeline (inference_program.hpp).
struct InferenceConfig {
  InferenceStep step{InferenceStep::prefill};
  int requests{1};  ///< in flight at once
  int tokens{1};    ///< decode steps of each request in an iteration

  /// Through every stage in an iteration.
  [[nodiscard]] int num_passes() const { return requests * tokens; }
};

/// How a block is run on one rank.
struct LayerConfig {
  BlockKind block{BlockKind::block};
  ModelShape shape;
  Parallel parallel;
  DType dtype{DType::f32};
  bool gather_output{true};  ///< linear_column only: all columns on every rank
  PipelineConfig pipeline{};
  /// Weight gradients are added to what their buffers hold: several micro-batches make one. Whoever
  /// runs them clears the buffers before.
  bool accumulate_gradients{false};
  Recompute recompute{Recompute::none};  ///< of pipelines
  /// The head's matrix is the embedding's table: equal values, and one gradient, their sum.
  bool tied_embeddings{false};
  std::optional<InferenceConfig> inference{};  ///< none: training
  /// Inference: tokens of each sequence before those of `shape`, whose keys and values are cached.
  std::int64_t past{0};

  [[nodiscard]] bool is_pipeline() const { return pipeline.schedule != nullptr; }
  /// Micro-batches of an iteration, of all copies of the model.
  [[nodiscard]] int num_micro() const {
    return is_pipeline() ? parallel.dp.size * pipeline.micro : 1;
  }

  /// Tokens of this rank's position in the cp group: a part of every sequence.
  [[nodiscard]] std::int64_t tokens() const { return shape.tokens() / parallel.context.cp.size; }
  /// KV heads of this rank under TP: its share, or one that it shares with its neighbours.
  [[nodiscard]] std::int64_t local_kv_heads() const;
};

/// Throws InputError if `shape` cannot be split this way: it names the value, the rule, and the
/// nearest values that work. heads, kv_heads, ffn and vocab are split by tp, seq by tp under SP.
/// Context parallelism: seq by token_unit; heads and kv_heads of a tp rank by the Ulysses degree
/// (kv_heads may also divide it: then they are sent to several ranks); no model. With
/// accumulate_gradients no sum over ranks may follow a weight gradient: no SP around norms,
/// kv_heads a multiple of tp, no context parallelism. A pipeline makes such sums over tp at the end
/// of an iteration. What its backward recomputes is gone before a weight gradient that comes later:
/// then every backward must be one piece. Inference runs a model, without SP,
/// context parallelism and copies.
void check_divisible(const LayerConfig& config);
/// What seq must be a multiple of, P = cp, r = parts of the order (P / Ulysses degree): P, zigzag
/// lcm(2r, P), under SP the least common multiple of that and tp x P; without a split 1, or tp
/// under SP.
[[nodiscard]] std::int64_t token_unit(const Parallel& parallel);
/// The largest number of token chunks <= wanted that divides the rank's share of tokens evenly.
[[nodiscard]] int usable_chunks(std::int64_t tokens, int tp, bool sequence_parallel, int wanted);

}  // namespace shardmark
