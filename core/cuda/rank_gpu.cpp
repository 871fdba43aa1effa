#include "core/cuda/rank_gpu.hpp"

#include "core/cuda/backend.hpp"
#include "core/cuda/check.cuh"
#include "core/cuda/device_map.hpp"
#include "core/cuda/gpu.hpp"
#include "core/cuda/gpu_facts.cuh"
#include "core/cuda/mpi_support.hpp"
#include "core/cuda/nccl.hpp"
#include "core/cuda/probe.hpp"

#include <exception>
#include <optional>

namespace shardmark::cuda {
namespace {

/// Which piece this rank lacks for communication by this path; empty if none.
std::string why_not_by(Path path, const Transport& transport) {
  if (transport.size() == 1) return {};
  if (path == Path::nccl) return nccl_facts().missing;
  if (path == Path::mpi_cuda) return why_no_mpi_cuda(transport.name(), ask_mpi_for_cuda());
  return {};
}

class Opened final : public RankGpu {
 public:
  Opened(Transport& transport, const RankGpuOptions& options, const DeviceChoice& choice)
      : transport_{transport}, options_{options}, facts_{facts_of(choice.device)} {
    facts_.notices = choice.notices;
    // What NCCL allocates belongs to the device that is current.
    select();
    if (options.path == Path::nccl && transport.size() > 1) communicators_ = open_nccl(transport);
    device_ = open_gpu(choice.device, {options.high_priority, communicators_.get()});
    SHARDMARK_CUDA(cudaDeviceGetDefaultMemPool(&pool_, choice.device));
  }
  /// Peers may be gone, and streams wait for them.
  ~Opened() override {
    if (std::uncaught_exceptions() > 0 && communicators_ != nullptr) communicators_->abort();
  }

  [[nodiscard]] const GpuFacts& facts() const override { return facts_; }

  std::unique_ptr<MeasuredBackend> make_backend(Transport& transport) override {
    CudaBackend::Options options;
    options.path = &transport == &transport_ ? options_.path : Path::staged;
    options.allow_tf32 = options_.allow_tf32;
    options.timer = &timer_;
    return std::make_unique<CudaBackend>(*device_, transport, options);
  }

  void connect(const Group& group, Lane lane) override {
    select();
    if (communicators_ != nullptr)
      communicators_->connect(group, lane);
    else
      transport_.connect(group, lane);
  }

  void set_kernel_timer(KernelTimer* timer) override { timer_ = timer; }

  [[nodiscard]] std::int64_t peak_bytes() const override {
    std::uint64_t bytes = 0;
    SHARDMARK_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &bytes));
    return static_cast<std::int64_t>(bytes);
  }
  void reset_peak() override {
    std::uint64_t none = 0;  // the only value that can be set
    SHARDMARK_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &none));
  }

  double measure_peak_tflops(DType dtype) override {
    select();
    return measure_matmul_tflops(dtype, options_.allow_tf32);
  }
  void flush_cache() override {
    select();
    if (!flusher_) flusher_.emplace();
    flusher_->flush();
  }

 private:
  /// The device is current for each thread by itself.
  void select() const { SHARDMARK_CUDA(cudaSetDevice(facts_.index)); }

  Transport& transport_;
  RankGpuOptions options_;
  GpuFacts facts_;
  KernelTimer* timer_{nullptr};
  cudaMemPool_t pool_{nullptr};
  std::unique_ptr<Communicators> communicators_;  ///< outlives the device, whose streams it uses
  std::unique_ptr<Device> device_;
  std::optional<CacheFlusher> flusher_;
};

}  // namespace

std::string why_no_cuda() { return why_no_gpu(); }

std::unique_ptr<RankGpu> open_rank_gpu(Transport& transport, const RankGpuOptions& options) {
  agree(transport, why_no_cuda());
  agree(transport, why_not_by(options.path, transport));
  RankPlace mine = place_of_this_process();
  mine.devices = bus_ids();
  mine.nccl_version = nccl_facts().version;
  const std::vector<DeviceChoice> choices =
      agree_on_devices(transport, mine, options.path, options.device);
  const DeviceChoice& choice = choices[static_cast<std::size_t>(transport.rank())];
  agree(transport, why_no_gpu(choice.device));
  return std::make_unique<Opened>(transport, options, choice);
}

}  // namespace shardmark::cuda
