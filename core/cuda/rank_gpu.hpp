#pragma once

// The GPU of a rank as programs see it: no CUDA header, and a build without CUDA has it too, where
// opening one says what is missing (absent.cpp).

#include "core/cuda/kernel_timer.hpp"
#include "core/cuda/path.hpp"
#include "core/measured_backend.hpp"
#include "core/transport.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::cuda {

struct RankGpuOptions {
  Path path{Path::nccl};
  int device{-1};             ///< GPU index of this process; -1: by the rank's place on its host
  bool allow_tf32{false};     ///< f32 matmuls may round their operands to TF32
  bool high_priority{false};  ///< compute stream; the others always have high priority
};

/// What runs here, for provenance.
struct GpuFacts {
  std::string name;  ///< "NVIDIA H200"
  int index{0};      ///< among the GPUs that this process sees
  std::string bus_id;
  std::string compute_capability;  ///< "9.0"
  int num_sms{0};
  std::int64_t memory_bytes{0};
  /// Name and version of the driver and of each library, and every NCCL_* variable that is set.
  std::vector<std::pair<std::string, std::string>> versions, settings;
  /// What this rank cannot do or does otherwise than asked, a sentence each.
  std::vector<std::string> notices;
};

class RankGpu {
 public:
  RankGpu() = default;
  RankGpu(const RankGpu&) = delete;
  RankGpu& operator=(const RankGpu&) = delete;
  virtual ~RankGpu() = default;

  [[nodiscard]] virtual const GpuFacts& facts() const = 0;
  /// A backend on this GPU. Over the transport that the GPU was opened with, bytes go by its path;
  /// over another one (a world of one rank) through host memory. Both must outlive the backend.
  [[nodiscard]] virtual std::unique_ptr<MeasuredBackend> make_backend(Transport& transport) = 0;
  /// Prepares communication of `group` on `lane`. Collective over the group, as
  /// Transport::connect.
  virtual void connect(const Group& group, Lane lane) = 0;
  /// Kernel times from here on while a kernel sink is set; null: from events around each op.
  virtual void set_kernel_timer(KernelTimer* timer) = 0;
  /// Device memory in use by this rank's backends at most since reset_peak, bytes.
  [[nodiscard]] virtual std::int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  /// Best rate of square matmuls of `dtype` over a search of shapes, random data; 1e12 FLOP/s.
  [[nodiscard]] virtual double measure_peak_tflops(DType dtype) = 0;
  /// Overwrites the second-level cache, for figures of cold data.
  virtual void flush_cache() = 0;
};

/// Which piece is missing for GPUs at all: this build, the driver, a device. Empty if none is.
[[nodiscard]] std::string why_no_cuda();
/// The GPU of this rank. Collective over the transport's world: every rank throws InputError with
/// the reason where one of them has no GPU, or where ranks share one on a path that cannot.
[[nodiscard]] std::unique_ptr<RankGpu> open_rank_gpu(Transport& transport,
                                                     const RankGpuOptions& options);

}  // namespace shardmark::cuda
