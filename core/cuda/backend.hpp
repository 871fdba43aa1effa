#pragma once

#include "core/cuda/device.hpp"
#include "core/cuda/kernel_timer.hpp"
#include "core/cuda/op_times.hpp"
#include "core/cuda/path.hpp"
#include "core/cuda/staging.hpp"
#include "core/cuda/translate/translate.hpp"
#include "core/measured_backend.hpp"
#include "core/transport.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace shardmark::cuda {

/// Ops on a device with streams: a lane is a stream, a fence an event. An op is translated and its
/// calls are enqueued where it is submitted, so errors of an op that cannot run are thrown by
/// `execute` (InputError with the reason, where nothing on this device does the op).
///
/// Communication that goes through the host (Path::staged, Path::mpi_cuda) is moved by the
/// transport once its stream has come there, which `synchronize` looks for. Until it is complete,
/// what follows on its lane, and what waits for that on other lanes, is held back on the host;
/// everything else runs on.
class CudaBackend final : public MeasuredBackend {
 public:
  struct Options {
    Path path{Path::nccl};
    /// Where the timer to use is found, at the time; null, or null there: marks around each op.
    KernelTimer* const* timer{nullptr};
    bool allow_tf32{false};      ///< see Resources
    bool fused_attention{true};  ///< cuDNN's where it has one
  };
  /// Both must outlive the backend. What it is at goes to the transport's Activity.
  CudaBackend(Device& device, Transport& transport, const Options& options);
  ~CudaBackend() override;

  /// Usable by what is submitted afterwards, on every lane.
  std::byte* allocate(std::int64_t bytes, Category category) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  void execute(const OpRecord& record) override;
  void synchronize() override;
  void write(const Tensor& to, const void* from) override;
  void read(const Tensor& from, void* to) override;
  [[nodiscard]] std::uint32_t first_fence() const override { return last_fence_ + 1; }
  /// Why attention so far was matmuls where it could have been one call, each reason once.
  [[nodiscard]] std::set<std::string> notices() const override { return notices_; }

  void set_kernel_sink(KernelSink* sink) override {
    sink_ = sink;
    wants_times_ = sink != nullptr && sink->wants_times();
  }
  /// From the first op after a `synchronize` to the end of the next.
  [[nodiscard]] const ExecutorTimes& times() const override { return times_; }
  [[nodiscard]] double flops_executed() const override { return flops_executed_; }
  [[nodiscard]] double bytes_started() const override { return bytes_started_; }

 private:
  /// Ops of a lane that are held back, the first one being or waiting for communication through the
  /// host.
  struct Queue {
    enum class Stage : std::uint8_t {
      held,     ///< its turn has not come
      leaving,  ///< its stream is on the way there
      moving    ///< the transport has it
    };
    std::vector<OpRecord> ops;
    std::size_t head{0};
    Stage stage{Stage::held};
    StagedOp staged{};
    Device::Mark begin{0}, there{0};
    [[nodiscard]] bool empty() const { return head == ops.size(); }
    [[nodiscard]] const OpRecord& front() const { return ops[head]; }
  };
  /// A block of device memory that only grows.
  struct Workspace {
    std::byte* data{nullptr};
    std::int64_t bytes{0};
  };
  /// Angles of one kind of Rope, on the device.
  struct RotaryTable {
    Places places;
    std::vector<std::int64_t> starts;
    std::int64_t seq, head_dim;
    float theta;
    std::byte* data;
  };

  std::byte* workspace(std::int64_t bytes, Lane lane);
  /// The calls of the op are in translation_, its workspace is there.
  void translate_op(const OpRecord& record);
  /// Why the device does not run one of the calls; empty if it runs all.
  [[nodiscard]] std::string refused_attention();
  const float* table_for(const Rope& op);
  /// What follows on the compute lane comes after all that was submitted so far; or what follows on
  /// any lane after what was submitted to it.
  void gather_lanes();
  void spread_lanes();

  [[nodiscard]] bool goes_through_host(const Op& op) const;
  [[nodiscard]] bool must_wait(const OpRecord& record) const;
  void hold(const OpRecord& record);
  /// Enqueues the op's calls.
  void submit(const OpRecord& record);
  /// Moves a lane's head on; true if anything changed.
  bool advance(Queue& queue, Lane lane);
  void leave(Queue& queue, Lane lane);
  void arrive(Queue& queue, Lane lane);
  void pop(Queue& queue);
  void run_held_ops();
  void wait_for_streams();
  void check_communication();
  void report_times();
  void give_up() noexcept;
  void clear();
  [[nodiscard]] KernelTimer* timer() const;
  /// Enqueues a part of an op with what measures it around.
  template <class Enqueue>
  void timed(const OpRecord& record, const Enqueue& enqueue);
  [[nodiscard]] std::string stuck() const;

  Device& device_;
  Transport& transport_;
  Options options_;
  KernelSink* sink_{nullptr};
  bool wants_times_{false};
  OpTimes op_times_;
  Staging staging_;
  std::array<Queue, num_lanes> queues_{};
  std::array<Workspace, num_lanes> workspaces_{};
  std::array<bool, num_lanes> is_used_{};  ///< since the last synchronize
  std::vector<RotaryTable> tables_;
  std::set<std::uint32_t> held_fences_;   ///< their signals are held back
  std::set<std::uint32_t> ops_by_marks_;  ///< sequence numbers, where a timer sees only copies
  std::vector<std::byte*> released_;
  std::size_t num_held_{0};
  int num_on_host_{0};
  bool error_has_path_{false};
  Translation translation_;  ///< of the last op; its memory is used again
  std::set<std::string> notices_;
  std::uint32_t last_fence_{0};
  std::uint64_t num_looks_{0};
  ExecutorTimes times_{};
  double flops_executed_{0}, bytes_started_{0};
};

}  // namespace shardmark::cuda
