#pragma once

#include "core/cuda/device.hpp"
#include "core/ops.hpp"

#include <array>
#include <vector>

namespace shardmark::cuda {

/// A communication op whose tensors lie in host memory, with the copies before and after it.
struct StagedOp {
  Op op;
  std::vector<MemoryCopy> to_host, to_device;
};

/// Host copies of what communication ops touch: one block of page-locked memory for each lane,
/// which has one such op at a time.
class Staging {
 public:
  explicit Staging(Device& device) : device_{device} {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// The op with its tensors in the lane's block. Tensors that share memory share it there, too.
  /// The block is free for the lane's next op once its stream has come past `to_device`.
  [[nodiscard]] StagedOp stage(const Op& op, Lane lane);
  /// Frees blocks that were too small. Only when all streams are complete.
  void free_outgrown() noexcept;

 private:
  struct Block {
    std::byte* data{nullptr};
    std::int64_t bytes{0};
  };
  [[nodiscard]] std::byte* block(std::int64_t bytes, Lane lane);

  Device& device_;
  std::array<Block, num_lanes> blocks_{};
  std::vector<std::byte*> outgrown_;
};

}  // namespace shardmark::cuda
