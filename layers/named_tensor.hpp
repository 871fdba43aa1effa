#pragma once

#include "core/places.hpp"
#include "core/tensor.hpp"
#include "layers/values.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// Indices [local_first, local_first + count) along the split dim of a local tensor are indices
/// [global_first, ...) of the global tensor named `of`.
struct ShardPart {
  std::string of;
  Shape global_shape;
  std::int64_t local_first{0}, global_first{0}, count{0};
  Init init{};  ///< how the global tensor's first values are made (inputs and weights)
};

enum class Role : std::uint8_t { input, weight, activation, output, gradient };
[[nodiscard]] std::string_view name_of(Role role);

/// A local tensor and how it tiles global ones along dim `dim` (0 rows, 1 columns). A fused weight
/// has one part per global tensor (q, k, v); a block-cyclic sequence part has one per chunk; a
/// replicated tensor has a single part that covers everything.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  Role role{Role::weight};
  std::size_t dim{0};
  std::vector<ShardPart> parts;
  std::string formula;    ///< how it is computed from other named tensors; empty if generated
  bool per_token{false};  ///< a row per token that the rank works on
  /// Split along columns only: the global rows that the local ones are, run after run. Empty: the
  /// same.
  std::vector<Places::Run> rows{};

  /// The global row of a local one, by `rows`.
  [[nodiscard]] std::int64_t global_row(std::int64_t row) const;
};
using NamedTensors = std::vector<NamedTensor>;

/// Puts "prefix/" in front of the names added to a list during its lifetime.
class Prefix {
 public:
  Prefix(NamedTensors& list, std::string prefix)
      : list_{list}, prefix_{std::move(prefix)}, first_{list.size()} {}
  Prefix(const Prefix&) = delete;
  Prefix& operator=(const Prefix&) = delete;
  ~Prefix();

 private:
  NamedTensors& list_;
  std::string prefix_;
  std::size_t first_;
};

/// A tensor every rank holds whole.
[[nodiscard]] NamedTensor replicated(std::string name, const Tensor& tensor, Role role,
                                     std::string formula = {}, Init init = {});

/// Context parallelism: the layers name their per-token tensors as if this rank's tokens (`places`
/// of each of `batch` sequences) were all of them; afterwards the tensors say which of all batch *
/// `seq` tokens they hold: in `rows`, or where they are split along rows in a part per run of
/// neighbours.
void place_tokens(NamedTensors& tensors, const Places& places, std::int64_t batch,
                  std::int64_t seq);

/// Writes generated values into a weight or input: element (row, col) of the global tensor gets the
/// same value whatever the split, so a shard equals the slice of the unsharded tensor.
void write_values(Backend& backend, const NamedTensor& target, const Values& values);

/// The tensor's elements as f32, row major. Synchronizes.
[[nodiscard]] std::vector<float> read_f32(Backend& backend, const Tensor& tensor);

}  // namespace shardmark
