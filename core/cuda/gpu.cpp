#include "core/cuda/gpu.hpp"

#include "core/cuda/attention_library.cuh"
#include "core/cuda/check.cuh"
#include "core/cuda/event_table.hpp"
#include "core/cuda/kernels/launch.hpp"
#include "core/cuda/matmul_library.cuh"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace shardmark::cuda {
namespace {

constexpr int oldest_major = 8;  // sm_80

/// Streams, events and memory of one GPU.
class Gpu final : public Device {
 public:
  Gpu(int index, const GpuSetup& setup)
      : index_{selected(index)}, communicators_{setup.communicators} {
    int lowest = 0, highest = 0;
    SHARDMARK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    for (std::size_t i = 0; i < num_lanes; ++i) {
      const bool is_low = static_cast<Lane>(i) == Lane::compute && !setup.high_priority;
      const int priority = is_low ? lowest : highest;
      SHARDMARK_CUDA(cudaStreamCreateWithPriority(&streams_[i], cudaStreamNonBlocking, priority));
    }
    // Memory that is given back stays in the pool: nothing is asked of the driver twice.
    SHARDMARK_CUDA(cudaDeviceGetDefaultMemPool(&pool_, index_));
    std::uint64_t threshold = std::numeric_limits<std::uint64_t>::max();
    SHARDMARK_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  ~Gpu() override {
    for (std::size_t i = 0; i < num_lanes; ++i) {
      for (const Workspace& workspace : {matmul_workspaces_[i], attention_workspaces_[i]})
        if (workspace.data != nullptr) free(workspace.data, static_cast<Lane>(i));
      SHARDMARK_CUDA_NOEXCEPT(cudaStreamSynchronize(streams_[i]));
      SHARDMARK_CUDA_NOEXCEPT(cudaStreamDestroy(streams_[i]));
    }
    events_.complete_all();
    for (const cudaEvent_t event : events_.events())
      SHARDMARK_CUDA_NOEXCEPT(cudaEventDestroy(event));
    for (const Marks& marks : marks_)
      for (const cudaEvent_t event : marks.events) SHARDMARK_CUDA_NOEXCEPT(cudaEventDestroy(event));
  }

  std::byte* allocate(std::int64_t bytes, Lane stream) override {
    void* data = nullptr;
    SHARDMARK_CUDA(cudaMallocFromPoolAsync(
        &data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), pool_, of(stream)));
    return static_cast<std::byte*>(data);
  }
  void free(std::byte* data, Lane stream) noexcept override {
    SHARDMARK_CUDA_NOEXCEPT(cudaFreeAsync(data, of(stream)));
  }
  const AttentionSupport& fused_attention() override { return attentions_.support(); }
  const AttentionSupport& fused_attention(const FusedAttention& call) override {
    return attentions_.support(call);
  }
  void run(const Call& call, Lane stream) override {
    std::visit([&](const auto& c) { run_one(c, stream); }, call);
  }
  void copy_to_device(std::byte* to, const void* from, std::int64_t bytes, Lane stream) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
    // Memory that is not page-locked may still be read when the call returns.
    SHARDMARK_CUDA(cudaStreamSynchronize(of(stream)));
  }
  void copy_to_host(void* to, const std::byte* from, std::int64_t bytes, Lane stream) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  }
  void synchronize() override {
    for (const cudaStream_t stream : streams_) SHARDMARK_CUDA(cudaStreamSynchronize(stream));
    events_.complete_all();
    for (Marks& marks : marks_) marks.num_used = 0;
  }

  Mark mark(Lane stream, bool timed) override {
    Marks& marks = marks_[timed ? 1 : 0];
    if (marks.num_used == marks.events.size())
      marks.events.push_back(make_event(timed ? cudaEventDefault : cudaEventDisableTiming));
    SHARDMARK_CUDA(cudaEventRecord(marks.events[marks.num_used], of(stream)));
    return static_cast<Mark>(2 * marks.num_used++) + (timed ? 1 : 0);
  }
  bool is_complete(Mark mark) override {
    const cudaError_t code = cudaEventQuery(event_of(mark));
    if (code == cudaErrorNotReady) return false;
    SHARDMARK_CUDA(code);
    return true;
  }
  std::int64_t ns_between(Mark from, Mark to) override {
    float milliseconds = 0;
    SHARDMARK_CUDA(cudaEventElapsedTime(&milliseconds, event_of(from), event_of(to)));
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }
  std::byte* allocate_host(std::int64_t bytes) override {
    void* data = nullptr;
    SHARDMARK_CUDA(
        cudaMallocHost(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
    return static_cast<std::byte*>(data);
  }
  void free_host(std::byte* data) noexcept override { SHARDMARK_CUDA_NOEXCEPT(cudaFreeHost(data)); }
  std::string find_communication_error() override {
    return communicators_ == nullptr ? std::string{} : communicators_->find_error();
  }
  void abort_communication() noexcept override {
    if (communicators_ != nullptr) communicators_->abort();
  }

 private:
  /// Before the members are made, some of which belong to the device that is current then.
  static int selected(int index) {
    SHARDMARK_CUDA(cudaSetDevice(index));
    return index;
  }
  static int major_of(int index) {
    int major = 0;
    SHARDMARK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    return major;
  }
  [[nodiscard]] cudaStream_t of(Lane lane) const { return streams_[index_of(lane)]; }
  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind, Lane stream) {
    SHARDMARK_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, of(stream)));
  }

  /// Memory of one lane for one library, which only grows.
  struct Workspace {
    std::byte* data{nullptr};
    std::int64_t bytes{0};
  };
  std::byte* at_least(std::int64_t bytes, Workspace& workspace, Lane stream) {
    if (bytes <= workspace.bytes) return workspace.data;
    if (workspace.data != nullptr) free(workspace.data, stream);
    workspace = {};
    workspace = {allocate(bytes, stream), bytes};
    return workspace.data;
  }

  void run_one(const MatmulCall& call, Lane stream) {
    Workspace& workspace = matmul_workspaces_[index_of(stream)];
    matmuls_.run(call, at_least(matmuls_.workspace_bytes(), workspace, stream), of(stream));
  }
  void run_one(const MemoryCopy& call, Lane stream) {
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    // The addresses say on which side each is.
    if (call.num_rows == 1)
      copy(call.to, call.from, call.row_bytes, cudaMemcpyDefault, stream);
    else
      SHARDMARK_CUDA(cudaMemcpy2DAsync(call.to, bytes(call.to_pitch_bytes), call.from,
                                       bytes(call.from_pitch_bytes), bytes(call.row_bytes),
                                       bytes(call.num_rows), cudaMemcpyDefault, of(stream)));
  }
  void run_one(const MemoryClear& call, Lane stream) {
    SHARDMARK_CUDA(cudaMemset2DAsync(call.to, static_cast<std::size_t>(call.pitch_bytes), 0,
                                     static_cast<std::size_t>(call.row_bytes),
                                     static_cast<std::size_t>(call.num_rows), of(stream)));
  }
  void run_one(const KernelCall& call, Lane stream) { start(call.kernel, call.launch, of(stream)); }
  void run_one(const EventRecord& call, Lane stream) {
    SHARDMARK_CUDA(cudaEventRecord(
        events_.record(call.fence, [] { return make_event(cudaEventDisableTiming); }), of(stream)));
  }
  void run_one(const EventWait& call, Lane stream) {
    if (const cudaEvent_t* event = events_.find(call.fence); event != nullptr)
      SHARDMARK_CUDA(cudaStreamWaitEvent(of(stream), *event, 0));
  }
  void run_one(const NcclGroup& call, Lane stream) {
    if (communicators_ == nullptr)
      throw Error{"communication between GPUs by NCCL on a GPU that was opened without it"};
    communicators_->run(call, stream, of(stream));
  }
  void run_one(const FusedAttention& call, Lane stream) {
    Workspace& workspace = attention_workspaces_[index_of(stream)];
    const std::int64_t bytes = attentions_.support(call).workspace_bytes;
    attentions_.run(call, at_least(bytes, workspace, stream), of(stream));
  }

  static cudaEvent_t make_event(unsigned flags) {
    cudaEvent_t event = nullptr;
    SHARDMARK_CUDA(cudaEventCreateWithFlags(&event, flags));
    return event;
  }
  /// Events for marks, those in use first.
  struct Marks {
    std::vector<cudaEvent_t> events;
    std::size_t num_used{0};
  };
  [[nodiscard]] cudaEvent_t event_of(Mark mark) const {
    return marks_[static_cast<std::size_t>(mark % 2)].events[static_cast<std::size_t>(mark / 2)];
  }

  int index_;
  Communicators* communicators_;
  std::array<Marks, 2> marks_{};  ///< [timed]
  std::array<cudaStream_t, num_lanes> streams_{};
  EventTable<cudaEvent_t> events_;
  std::array<Workspace, num_lanes> matmul_workspaces_{}, attention_workspaces_{};
  cudaMemPool_t pool_{nullptr};
  MatmulLibrary matmuls_{major_of(index_)};
  AttentionLibrary attentions_;
};

}  // namespace

std::string why_no_gpu(int index) {
  int count = 0, driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version == 0)
    return "no GPU can be used: no NVIDIA driver is installed";
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess)
    return message("no GPU can be used: ", cudaGetErrorString(code), " (", cudaGetErrorName(code),
                   "), driver for CUDA ", driver_version / 1000, '.', driver_version % 100 / 10);
  if (index >= count) return message("GPU ", index, " was asked for; this process sees ", count);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess)
    return message("GPU ", index, " cannot be asked for its properties");
  if (properties.major < oldest_major)
    return message(properties.name, " has compute capability ", properties.major, '.',
                   properties.minor, "; this build has code for ", oldest_major, ".0 and later");
  return {};
}

std::unique_ptr<Device> open_gpu(int index, const GpuSetup& setup) {
  if (const std::string why = why_no_gpu(index); !why.empty()) throw InputError{why};
  return std::make_unique<Gpu>(index, setup);
}

}  // namespace shardmark::cuda
