#pragma once

#include "core/rank.hpp"
#include "layers/program.hpp"

#include <string>

namespace shardmark {

/// reduced: a small shape with the same split; full: the measured shape. On one rank there is no
/// split and the measured shape would take the reference minutes: full means reduced there. Under
/// context parallelism full takes the reference as long, and runs if asked for.
enum class CheckMode : std::uint8_t { off, reduced, full };
[[nodiscard]] std::string_view name_of(CheckMode mode);
/// The mode that a case on so many ranks runs with when `mode` is asked for.
[[nodiscard]] CheckMode usable_check_mode(CheckMode mode, int num_ranks);

/// What is known of the backends that are compared.
struct CheckOptions {
  /// Whether both run the same kernels: a comparison on random data may be bitwise only then. Exact
  /// data has the same results in any order of sums and by any kernel.
  bool same_kernels{true};
  /// What their arithmetic may be off by where that is more than f32's: the least tolerance.
  double arithmetic_error{0};
};

struct CheckResult {
  bool pass{true};
  bool exact{false};       ///< a bitwise comparison was part of it
  double max_abs_err{0};   ///< largest |got - expected| of any element on random data
  double rel_norm_err{0};  ///< largest norm(got - expected) / norm(expected) of any tensor
  double tolerance{0};     ///< on rel_norm_err: 1e-5 in f32, 2e-2 in bf16, 5e-3 in f16
  std::string problem;     ///< rank, tensor, element, expected, got, and how many
};

/// The same block with as little work as its split allows: the split, its order, chunks, head
/// sharing, masks, kinds and dtype stay; widths and tokens shrink, window and packed sequences with
/// them. At tp 1 up to 512 tokens of a sequence stay, so that matmuls pack their weights and
/// attention works in several blocks as at full size. A pipeline keeps its schedule, and one block
/// per stage or two where a stage has more than others; inference its requests, and a few tokens.
[[nodiscard]] LayerConfig reduced_config(const LayerConfig& config);

/// Runs forward and backward of `config` on `rank` and of the same block on one rank: with tp alone
/// on `serial_backend`; at tp 1 (the same kernels would only be compared with themselves) and under
/// context parallelism (whose error is to be known against f64) on a ReferenceBackend. Compares
/// every tensor of this rank with its slice of the serial one: bitwise on exact data for linears,
/// MLP and attention, within the tolerance on random data for all (an attention core has none).
///
/// A pipeline is compared with the whole model in one stage, on `serial_backend` and random data:
/// weight gradients and losses, bitwise where each gradient adds up the micro-batches in ascending
/// order on one rank (tp 1, dp 1, not DualPipe), else within the tolerance.
///
/// Inference on several ranks is compared with one rank on `serial_backend` and random data,
/// bitwise at tp 1: caches, tokens, the last request's logits and every request's largest one. On
/// one rank with a ReferenceBackend.
///
/// Every rank of the group calls it; the groups are connected. Each rank judges its own part.
[[nodiscard]] CheckResult check_against_serial(Rank& rank, const LayerConfig& config,
                                               Backend& serial_backend, std::uint64_t seed,
                                               const CheckOptions& options = {});

/// Compares local tensors with the serial ones by name. Exposed for tests of the checker itself.
[[nodiscard]] CheckResult compare(int rank, Backend& backend, const NamedTensors& local,
                                  Backend& serial_backend, const NamedTensors& serial, bool bitwise,
                                  double tolerance);

}  // namespace shardmark
