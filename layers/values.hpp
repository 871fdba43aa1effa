#pragma once

#include "core/backend.hpp"
#include "core/types.hpp"

#include <cstdint>
#include <string>

namespace shardmark {

/// Which rule makes a tensor's values when the data must be exact (see Values).
enum class ExactRule : std::uint8_t {
  zero,
  one,
  sparse,           ///< -unit, 0 or unit; about `nonzeros` per column of a matrix
  positions,        ///< attention input: columns 0, 1 hold the position (high, low), 2 holds 1
  attention_query,  ///< reads the constant column of `positions` into head dims 0 and 1
  attention_key,    ///< reads the position columns into head dims 0 and 1
  attention_value,  ///< sparse, but ignores the three columns of `positions`
  gradient_rows,    ///< -1, 0 or 1 in at most 16 rows
  ids,              ///< token ids, uniform in [0, limit)
  row_index,        ///< center + row % limit
};

/// How the first values of a tensor are made. Random data: uniform in center +- scale.
struct Init {
  double center{0}, scale{0};
  ExactRule exact{ExactRule::sparse};
  double unit{1};
  double nonzeros{4};
  std::int64_t limit{1};  ///< head_dim of attention weights, seq of positions, vocabulary of ids
};

/// A counter-based generator: the value of an element depends only on (seed, name of the global
/// tensor, global row, global column).
///
/// random: value = center + scale * (2u - 1), u = (mix(key + (row * cols + col) *
/// 0x9e3779b97f4a7c15)
/// >> 40) / 2^24, key = mix(seed xor fnv1a(name)), mix = the finaliser of splitmix64 (Steele, Lea,
/// Flood, OOPSLA 2014).
///
/// exact: small integers for which every sum is exact in f32 and bf16 in any order, with inputs of
/// non-linearities far from where they round: pre-activations are 0 or beyond +-16 (gated: +-128),
/// where GeLU and SiLU are exactly the identity, 0 or (at 0) have slope 1/2; attention logits
/// differ by more than 104, so each softmax row is exactly one-hot. Then "parallel equals serial"
/// holds to the bit.
class Values {
 public:
  enum class Kind : std::uint8_t { random, exact };
  Values(Kind kind, std::uint64_t seed) : kind_{kind}, seed_{seed} {}

  [[nodiscard]] Kind kind() const { return kind_; }
  /// The generator's key of one tensor.
  [[nodiscard]] std::uint64_t key(const std::string& name) const;
  [[nodiscard]] float value(std::uint64_t key, const Init& init, const Shape& global,
                            std::int64_t row, std::int64_t col) const;
  /// One sentence for the manifest: how `init` makes its values under this kind.
  [[nodiscard]] std::string formula(const Init& init) const;

 private:
  [[nodiscard]] float exact(std::uint64_t key, const Init& init, const Shape& global,
                            std::int64_t row, std::int64_t col) const;
  Kind kind_;
  std::uint64_t seed_;
};

}  // namespace shardmark
