#pragma once

#include "bench/collectives/cases.hpp"
#include "bench/harness/engine.hpp"
#include "core/adaptors.hpp"
#include "core/buffer.hpp"
#include "core/rank.hpp"
#include "core/transport.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace shardmark::bench::collectives {

/// One call, ready to be made again and again by one rank.
class Runnable {
 public:
  Runnable() = default;
  explicit Runnable(std::vector<Op> ops) : ops_{std::move(ops)} {}
  /// A plan's part with its scratch; `plan` must outlive this.
  Runnable(const Plan& plan, const Call& call, const Tensor& scratch)
      : bound_{BoundPlan{plan, call, scratch}} {}

  [[nodiscard]] std::span<const Op> ops() const {
    return bound_ ? bound_->ops() : std::span<const Op>{ops_};
  }
  /// Bytes this rank sends by the plan; -1 without one.
  [[nodiscard]] double bytes_plan() const {
    return bound_ ? static_cast<double>(bound_->bytes_sent()) : -1;
  }

 private:
  std::vector<Op> ops_;
  std::optional<BoundPlan> bound_;
};

/// Lets ops pass by a FaultBackend or through it.
class FaultSwitch final : public BackendAdaptor {
 public:
  FaultSwitch(Backend& plain, Backend& faulty, bool on)
      : BackendAdaptor{plain}, faulty_{faulty}, on_{on} {}
  void set(bool on) { on_ = on; }
  void execute(const OpRecord& record) override {
    if (on_)
      faulty_.execute(record);
    else
      inner().execute(record);
  }

 private:
  Backend& faulty_;
  bool on_;
};

/// One rank's executor and memory. Buffers of the largest size are made once, so that no page is
/// touched for the first time while the clock runs.
class Workspace {
 public:
  /// `max_bytes` and `scratch_bytes` are the largest buffers that calls need. Connects the group.
  Workspace(const World& world, const std::string& fault, std::int64_t max_bytes,
            std::int64_t scratch_bytes, Transport& transport, Engine& engine);

  [[nodiscard]] Call make_call(const Point& point, std::int64_t block_numel, bool in_place);
  [[nodiscard]] Runnable make_runnable(const Point& point, const Plan* plan, const Call& call);
  /// `bytes` from the input buffer of calls out of place to their output.
  [[nodiscard]] Runnable make_copy(std::int64_t bytes);
  /// A `corrupt` fault counts and breaks only ops between set_checking(true) and (false): those
  /// whose results somebody looks at. Other kinds always count.
  void set_checking(bool checking);
  /// True on the rank of a fault that has not happened yet.
  [[nodiscard]] bool is_fault_armed() const { return fault_ && fault_->is_armed(); }
  /// Makes `count` calls back to back and waits for their end; after each one with `blocking`.
  void run(const Runnable& runnable, int count, bool blocking);

  [[nodiscard]] Rank& rank() { return *rank_; }
  [[nodiscard]] MeasuredBackend& backend() { return *backend_; }
  static constexpr Lane lane = Lane::tp;

 private:
  std::unique_ptr<MeasuredBackend> backend_;
  std::unique_ptr<FaultBackend> fault_;
  std::unique_ptr<FaultSwitch> fault_switch_;
  bool only_checks_{false};
  std::unique_ptr<Rank> rank_;
  Group group_;
  Buffer x_, y_, scratch_;
  std::map<std::int64_t, std::vector<std::int64_t>> counts_;  ///< by unit; ops look at them
};

/// A call of one member of `group` on made-up memory: for its sizes only.
[[nodiscard]] Call sketch_call(const Point& point, std::int64_t block_numel, const Group& group,
                               bool in_place, std::span<const std::int64_t> counts);
/// Bytes that a member sends by the formula of the plan's algorithm, or natively (null); -1 for a
/// plan from a file. `hosts` as in World.
[[nodiscard]] double formula_bytes(const Point& point, const Call& call, const Way& way,
                                   const Plan* plan, std::int64_t block_numel,
                                   std::span<const int> hosts);
/// Bytes of scratch that `way` needs for a size.
[[nodiscard]] std::int64_t scratch_bytes_of(const Series& series, const Way& way,
                                            std::int64_t block_numel, const Group& group);

}  // namespace shardmark::bench::collectives
