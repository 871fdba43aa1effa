#pragma once

#include "core/cpu/arena.hpp"
#include "core/ops.hpp"

#include <cstdint>
#include <memory>

namespace shardmark {

/// Lets long kernels give communication a chance between tiles. Nothing overlaps on a CPU unless
/// MPI is called now and then.
class TileHook {
 public:
  virtual ~TileHook() = default;
  /// True while communication is in flight: run in tiles of roughly a quarter millisecond then, in
  /// one piece otherwise.
  [[nodiscard]] virtual bool wants_tiles() const = 0;
  /// Called between two tiles, never inside one.
  virtual void between_tiles() = 0;
};

/// The compute ops on a CPU: oneDNN for dense algebra, loops compiled for several instruction sets
/// for the rest. One per rank; not thread-safe; uses up to `num_threads` threads inside a call.
class Kernels {
 public:
  Kernels(int num_threads, Arena& arena);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels();

  /// Runs a compute op to its end. Returns the implementation's name (static storage, or living as
  /// long as this object), e.g. oneDNN's "brg:avx512_core". Communication and ordering ops are an
  /// error. Same operands give the same bits whatever the tiling.
  const char* run(const Op& op, TileHook& hook);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Scratch bytes `Kernels::run(op)` takes from the arena besides the op's tensors, for memory
/// prediction. The scratch of one Kernels object is one block of the largest op's size.
[[nodiscard]] std::int64_t workspace_bytes(const Op& op, int num_threads);

}  // namespace shardmark
