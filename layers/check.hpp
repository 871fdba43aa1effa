#pragma once

#include "core/rank.hpp"
#include "layers/program.hpp"

#include <string>

namespace shardmark {

/// reduced: a small shape with the same split; full: the measured shape. At tp 1 there is no split
/// and the measured shape would take the reference minutes: full means reduced there.
enum class CheckMode : std::uint8_t { off, reduced, full };
[[nodiscard]] std::string_view name_of(CheckMode mode);
/// The mode that a case of this degree runs with when `mode` is asked for.
[[nodiscard]] CheckMode usable_check_mode(CheckMode mode, int tp);

struct CheckResult {
  bool pass{true};
  bool exact{false};       ///< a bitwise comparison on exact data was part of it
  double max_abs_err{0};   ///< largest |got - expected| of any element on random data
  double rel_norm_err{0};  ///< largest norm(got - expected) / norm(expected) of any tensor
  double tolerance{0};     ///< on rel_norm_err: 1e-5 in f32, 2e-2 in bf16
  std::string problem;     ///< rank, tensor, element, expected, got, and how many
};

/// The same block with as little work as its split allows: tp, chunks, head sharing, kinds and
/// dtype stay; widths and tokens shrink. At tp 1 up to 512 tokens of a sequence stay, so that
/// matmuls pack their weights and attention works in several blocks as at full size.
[[nodiscard]] LayerConfig reduced_config(const LayerConfig& config);

/// Runs forward and backward of `config` on `rank` and of the same block with tp 1 on
/// `serial_backend`, or when `config` has tp 1 itself on a ReferenceBackend (the same kernels would
/// only be compared with themselves), and compares every tensor of this rank with its slice of the
/// serial one: bitwise on exact data for linears, MLP and attention, within the tolerance on random
/// data for all. Every rank of the group calls it; the groups are connected. Each rank judges its
/// own part.
[[nodiscard]] CheckResult check_against_serial(Rank& rank, const LayerConfig& config,
                                               Backend& serial_backend, std::uint64_t seed);

/// Compares local tensors with the serial ones by name. Exposed for tests of the checker itself.
[[nodiscard]] CheckResult compare(int rank, Backend& backend, const NamedTensors& local,
                                  Backend& serial_backend, const NamedTensors& serial, bool bitwise,
                                  double tolerance);

}  // namespace shardmark
