#pragma once

#include "core/cpu/arena.hpp"
#include "core/types.hpp"

#include <memory>

namespace shardmark {

/// The machine's matmul rate right now: oneDNN's 2048 x 2048 x 2048 product on random data, with
/// the weights in plain row-major order or packed beforehand in the layout oneDNN likes best. What
/// MFU on a CPU is measured against. Buffers live in the arena as long as the probe.
class GemmProbe {
 public:
  enum class Layout : std::uint8_t { plain, packed };
  GemmProbe(DType dtype, int num_threads, Arena& arena);
  GemmProbe(const GemmProbe&) = delete;
  GemmProbe& operator=(const GemmProbe&) = delete;
  ~GemmProbe();

  /// Runs the product once; TFLOP/s of this call.
  [[nodiscard]] double run_tflops(Layout layout);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shardmark
