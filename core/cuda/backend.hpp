#pragma once

#include "core/backend.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/translate/translate.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace shardmark::cuda {

/// Ops on a device with streams: a lane is a stream, a fence an event. An op is translated where it
/// is submitted and its calls are enqueued at once, so errors of an op that cannot run are thrown
/// by `execute` (InputError with the reason, where nothing on this device does the op).
class CudaBackend final : public Backend {
 public:
  struct Options {
    bool allow_tf32{false};      ///< see Resources
    bool fused_attention{true};  ///< cuDNN's where it has one
  };
  /// The device must outlive the backend.
  explicit CudaBackend(Device& device) : CudaBackend{device, Options{}} {}
  CudaBackend(Device& device, const Options& options) : device_{device}, options_{options} {}
  ~CudaBackend() override;

  /// Usable by what is submitted afterwards, on every lane.
  std::byte* allocate(std::int64_t bytes, Category category) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  void execute(const OpRecord& record) override;
  void synchronize() override { device_.synchronize(); }
  void write(const Tensor& to, const void* from) override;
  void read(const Tensor& from, void* to) override;
  [[nodiscard]] std::uint32_t first_fence() const override { return last_fence_ + 1; }
  /// Why attention so far was matmuls where it could have been one call, each reason once.
  [[nodiscard]] const std::set<std::string>& notices() const { return notices_; }

 private:
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

  Device& device_;
  Options options_;
  std::array<Workspace, num_lanes> workspaces_{};
  std::vector<RotaryTable> tables_;
  Translation translation_;  ///< of the last op; its memory is used again
  std::set<std::string> notices_;
  std::uint32_t last_fence_{0};
};

}  // namespace shardmark::cuda
