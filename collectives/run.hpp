#pragma once

#include "collectives/choose.hpp"
#include "collectives/plan.hpp"
#include "core/adaptors.hpp"
#include "core/transport.hpp"

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace shardmark {

/// How the collectives of each axis are done: a name of `algorithms`, "native" (as is every axis
/// that is not named), or "auto", which asks the table.
struct PlanChoice {
  std::map<Axis, std::string> algorithms;
  ChoiceTable table;
};
/// Reads "tp=ring,dp=auto". Throws InputError naming what exists.
[[nodiscard]] std::map<Axis, std::string> parse_axis_algorithms(std::string_view text);

/// A collective that a program runs over a group of more than one rank.
struct UsedCollective {
  Axis axis{Axis::tp};
  Collective collective{Collective::all_reduce};
  int group_size{2};
  std::int64_t bytes{0};  ///< as a ChoiceTable has it
  auto operator<=>(const UsedCollective&) const = default;
};
/// Adds those of `ops`.
void add_used_collectives(std::span<const OpRecord> ops, std::set<UsedCollective>& used);
/// What `choice` leaves as it is among `used`, a line each: "tp: all_gather stays native (binomial
/// has none)", "tp=auto: the table has no row for ...". Throws InputError, naming what would work,
/// for an axis that has none of them, and for an algorithm that can do none of its axis.
[[nodiscard]] std::vector<std::string> find_unplanned(const PlanChoice& choice,
                                                      const std::set<UsedCollective>& used);

/// Replaces collectives by the ops of a plan, on the same lane, with the same seq and path. What an
/// algorithm cannot do, and groups of one, stay as they are. Plans, bound ops and scratch are made
/// on first use and kept, so that the second iteration of a program allocates nothing.
class PlannedBackend final : public BackendAdaptor {
 public:
  /// `hosts[r]` is any number that the world ranks of one host share. Throws InputError on an
  /// unknown algorithm.
  PlannedBackend(Backend& inner, PlanChoice choice, std::vector<int> hosts);
  ~PlannedBackend() override;

  void execute(const OpRecord& record) override;

  /// What the collectives so far put on this rank's link: those done by plans what their plans
  /// send, the others what bytes_wire_of says.
  [[nodiscard]] double bytes_sent() const { return bytes_sent_; }

 private:
  using PlanKey = std::tuple<Collective, std::string, int, int, int, int>;  ///< ..., group, root
  using BoundKey = std::tuple<const Plan*, Lane, int, DType, Reduction, const std::byte*,
                              const std::byte*, std::int64_t, const void*>;
  struct Scratch {
    std::byte* data{nullptr};
    std::int64_t bytes{0};
  };

  [[nodiscard]] const Plan* plan_for(const Call& call);
  [[nodiscard]] const BoundPlan& bound(const Plan& plan, const Call& call, Lane lane);
  [[nodiscard]] Tensor scratch(Lane lane, DType dtype, std::int64_t numel);

  PlanChoice choice_;
  std::vector<int> hosts_;
  std::map<PlanKey, std::unique_ptr<const Plan>> plans_;
  std::map<BoundKey, BoundPlan> bound_;
  std::array<Scratch, num_lanes> scratch_{};
  std::vector<Scratch> outgrown_;  ///< bound ops still point there
  double bytes_sent_{0};
};

/// A recorded program of one rank with its collectives done by plans.
struct PlannedProgram {
  std::vector<OpRecord> ops;
  std::int64_t scratch_bytes{0};  ///< taken by the plans
  double bytes_sent{0};           ///< on this rank's link: PlannedBackend::bytes_sent
};
[[nodiscard]] PlannedProgram plan_program(std::span<const OpRecord> ops, const PlanChoice& choice,
                                          const std::vector<int>& hosts);

/// A number per world rank, equal for those that run on one host.
[[nodiscard]] std::vector<int> host_numbers(std::span<const Endpoint> endpoints);
/// The call that a collective op stands for; nothing for other ops.
[[nodiscard]] std::optional<Call> call_of(const Op& op);

}  // namespace shardmark
