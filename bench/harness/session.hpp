#pragma once

#include "bench/harness/engine.hpp"
#include "bench/harness/measure.hpp"
#include "collectives/run.hpp"
#include "core/adaptors.hpp"
#include "profiler/host_collector.hpp"
#include "profiler/kernel_fanout.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shardmark::bench {

/// One profiled iteration on one rank.
struct ProfiledIteration {
  std::int64_t begin_ns{0}, end_ns{0};  ///< the window: barrier to barrier
  std::int64_t idle_ns{0};              ///< measured by the executor and around it
  std::int64_t closing_ns{0};           ///< from this rank's end to the closing barrier's
  std::vector<OpRecord> ops;            ///< paths live as long as the session
  std::vector<KernelRecord> records;
  [[nodiscard]] double window_us() const { return static_cast<double>(end_ns - begin_ns) / 1e3; }
};

/// A configuration built and ready to run on a rank that takes part in it.
class Session {
 public:
  /// `check_nan` runs op by op and stops at the first NaN: not for timing.
  Session(const Case& config, const LayerConfig& layer, const Mesh& mesh,
          const RunnerOptions& options, bool check_nan, Transport& transport, Engine& engine);

  /// Runs `count` iterations back to back; nanoseconds from start to this rank's end.
  std::int64_t iterate(int count);
  /// What passes through to the executor from now on; nothing: everything.
  void set_keep(std::optional<OpKind> keep) { filter_.set_keep(keep); }
  /// One iteration between two barriers of the world, with kernel times. Collective; ranks outside
  /// of the case call only the barriers.
  [[nodiscard]] ProfiledIteration profile(Transport& transport);

  [[nodiscard]] Rank& rank() { return *rank_; }
  [[nodiscard]] const LayerProgram& program() const { return *program_; }
  [[nodiscard]] double flops_executed() const { return backend_->flops_executed(); }
  [[nodiscard]] double bytes_started() const { return backend_->bytes_started(); }
  [[nodiscard]] std::set<std::string> notices() const { return backend_->notices(); }
  /// Bytes that the collectives so far send, those done by a plan as the plan says.
  [[nodiscard]] double bytes_planned() const { return planned_.bytes_sent(); }

 private:
  Phase phase_;
  Engine& engine_;
  std::unique_ptr<MeasuredBackend> backend_;
  std::unique_ptr<Backend> fault_, nan_check_;
  PlannedBackend planned_;
  FilterBackend filter_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<LayerProgram> program_;
  std::unique_ptr<KernelSink> nvtx_;
  HostCollector collector_;
  KernelFanout fanout_;
  OpList ops_;
};

}  // namespace shardmark::bench
