#pragma once

#include "core/cpu/arena.hpp"
#include "core/cpu/kernels.hpp"
#include "core/cpu/progress_thread.hpp"
#include "core/measured_backend.hpp"
#include "core/transport.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace shardmark {

/// Cooperative executor: lanes are queues without threads. `synchronize` drains them in the calling
/// thread: it starts every ready communication, runs ready compute ops, and moves communication
/// along between them and between the tiles of long ones, or a progress thread does while they run.
class CpuBackend final : public MeasuredBackend, private TileHook {
 public:
  /// All three must outlive the backend. What it is at goes to the transport's Activity.
  CpuBackend(Transport& transport, Arena& arena, Kernels& kernels);
  ~CpuBackend() override;

  std::byte* allocate(std::int64_t bytes, Category category) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  void execute(const OpRecord& record) override;
  void synchronize() override;
  void write(const Tensor& to, const void* from) override;
  void read(const Tensor& from, void* to) override;
  [[nodiscard]] std::uint32_t first_fence() const override { return last_fence_ + 1; }

  void set_kernel_sink(KernelSink* sink) override { sink_ = sink; }
  [[nodiscard]] const ExecutorTimes& times() const override { return times_; }
  [[nodiscard]] double flops_executed() const override { return flops_executed_; }
  [[nodiscard]] double bytes_started() const override { return transport_.bytes_started(); }
  [[nodiscard]] bool is_host_memory() const override { return true; }
  /// From now on a thread of this backend's own moves communication along while a compute op runs,
  /// which then runs in one piece. The sink is called on that thread as well, never on both at
  /// once. Pays where cores are to spare. Only on a transport that may change the thread.
  void set_progress_thread(bool on) override;

 private:
  struct Queue {
    std::vector<OpRecord> ops;
    std::size_t head{0};
    bool in_flight{false};
    std::int64_t start_ns{0};
    [[nodiscard]] bool empty() const { return head == ops.size(); }
  };

  [[nodiscard]] bool wants_tiles() const override {
    return progress_ == nullptr && num_in_flight_ > 0;
  }
  void between_tiles() override;

  /// Takes the head off its queue.
  void pop(Queue& queue, Lane lane);
  bool advance_communication();
  bool advance_head(Queue& queue, Lane lane);
  bool run_compute();
  const char* run_kernel(const OpRecord& record);
  void start(Queue& queue, Lane lane);
  void finish(Queue& queue, Lane lane);
  void drain();
  void clear();
  void account_idle();
  /// Runs `action` as a part of this op: the first error gets the op's path and keeps its type.
  template <class Action>
  auto run_as(const OpRecord& record, const Action& action);
  [[nodiscard]] std::string stuck() const;
  [[nodiscard]] bool is_done(Fence fence) const;

  Transport& transport_;
  Arena& arena_;
  Kernels& kernels_;
  KernelSink* sink_{nullptr};
  std::array<Queue, num_lanes> queues_;
  std::uint32_t waiting_{0};  ///< bit i: lane i is not empty; looking is what waiting consists of
  std::size_t num_queued_{0};
  int num_in_flight_{0};
  bool error_has_path_{false};
  std::vector<std::uint8_t> fence_done_;  ///< indexed by fence id - first_fence_
  std::uint32_t first_fence_{0};          ///< every fence below is done
  std::uint32_t last_fence_{0};
  std::int64_t tile_start_ns_{0}, idle_since_ns_{0};
  std::vector<std::pair<std::int64_t, std::int64_t>> tiles_;
  std::vector<std::byte*> released_;
  ExecutorTimes times_{};
  double flops_executed_{0};
  bool computing_{false};  ///< a kernel runs while the progress thread looks: no time is idle
  std::unique_ptr<ProgressThread> progress_;
};

}  // namespace shardmark
