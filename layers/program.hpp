#pragma once

#include "core/rank.hpp"
#include "layers/named_tensor.hpp"
#include "layers/shape.hpp"

#include <memory>
#include <vector>

namespace shardmark {

/// A block ready to run on one rank: layers, one set of activations, input and output gradient.
/// Submits ops only; the caller synchronizes. The same program runs on every backend.
class LayerProgram {
 public:
  LayerProgram() = default;
  LayerProgram(const LayerProgram&) = delete;
  LayerProgram& operator=(const LayerProgram&) = delete;
  virtual ~LayerProgram() = default;

  virtual void forward() = 0;
  /// After a forward; may be repeated.
  virtual void backward(Part part = Part::both) = 0;
  /// A whole iteration. A pipeline has only this: its forwards and backwards are interleaved.
  virtual void step() {
    forward();
    backward();
  }
  /// Weights, inputs, activations and gradients of this rank.
  [[nodiscard]] virtual NamedTensors tensors() const = 0;
};

/// Builds the program of `config` (checked with check_divisible) and allocates all its memory.
[[nodiscard]] std::unique_ptr<LayerProgram> make_program(Rank& rank, const LayerConfig& config);

/// Fills weights and inputs. Weight gradients and activations stay unspecified.
void initialize(Rank& rank, const LayerProgram& program, const Values& values);

}  // namespace shardmark
