#include "collectives/run.hpp"

#include "core/error.hpp"
#include "core/record/backend.hpp"

#include <algorithm>

namespace shardmark {
namespace {

/// Bound ops of programs whose buffers move about are not kept for ever.
constexpr std::size_t max_bound = 4096;

bool exists(std::string_view algorithm) {
  if (algorithm == "native" || algorithm == "auto") return true;
  return std::ranges::any_of(algorithms(), [&](const Algorithm& a) { return a.name == algorithm; });
}

void check_algorithm(std::string_view algorithm) {
  if (exists(algorithm)) return;
  std::string known = "native, auto";
  for (const Algorithm& a : algorithms()) known += message(", ", a.name);
  throw InputError{message("there is no algorithm '", algorithm, "'; there is ", known)};
}

std::optional<Axis> parse_axis(std::string_view text) {
  for (std::size_t i = 0; i < num_axes; ++i)
    if (name_of(static_cast<Axis>(i)) == text) return static_cast<Axis>(i);
  return std::nullopt;
}

std::int64_t bytes_of(const Call& call) {
  const CollectiveFacts& facts = facts_of(call.collective);
  const bool y_is_larger = facts.output_has_n_blocks && call.y;
  const std::int64_t bytes =
      y_is_larger ? call.y.bytes() : std::max(call.x.bytes(), call.y.bytes());
  const bool is_block =
      (facts.output_has_n_blocks && !call.y) || (facts.input_has_n_blocks && !call.x);
  return is_block ? bytes * call.group.size : bytes;
}

bool does(std::string_view algorithm, Collective collective) {
  if (algorithm == "native" || algorithm == "auto") return true;
  const auto names = algorithm_names(collective);
  return std::ranges::find(names, algorithm) != names.end();
}

std::string names_of(const std::set<Collective>& collectives) {
  std::string names;
  for (const Collective collective : collectives)
    names += message(names.empty() ? "" : ", ", name_of(collective));
  return names;
}

/// Those that do any of the collectives.
std::string algorithms_for(const std::set<Collective>& collectives) {
  std::set<std::string_view> algorithms{"native"};
  for (const Collective collective : collectives)
    for (const std::string_view name : algorithm_names(collective)) algorithms.insert(name);
  std::string names;
  for (const std::string_view name : algorithms) names += message(names.empty() ? "" : ", ", name);
  return names;
}

/// A line for each collective and group that has sizes of which the table says nothing.
void add_missing_rows(Axis axis, const ChoiceTable& table, const std::set<UsedCollective>& used,
                      std::vector<std::string>& notices) {
  struct Sizes {
    std::size_t count{0};
    std::vector<std::int64_t> missing;
  };
  std::map<std::pair<Collective, int>, Sizes> groups;
  for (const UsedCollective& use : used) {
    if (use.axis != axis) continue;
    Sizes& sizes = groups[{use.collective, use.group_size}];
    ++sizes.count;
    if (table.find(use.collective, use.group_size, use.bytes) == nullptr)
      sizes.missing.push_back(use.bytes);
  }
  for (const auto& [group, sizes] : groups)
    if (!sizes.missing.empty())
      notices.push_back(message(
          name_of(axis), "=auto: the table has no row for ", name_of(group.first), " on ",
          group.second, " ranks at ", sizes.missing.size(), " of ", sizes.count, " sizes (",
          sizes.missing.front(), " to ", sizes.missing.back(), " B): native is taken there"));
}

}  // namespace

std::map<Axis, std::string> parse_axis_algorithms(std::string_view text) {
  std::map<Axis, std::string> algorithms;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const auto equals = part.find('=');
    const auto axis = parse_axis(part.substr(0, equals));
    if (equals == std::string_view::npos || !axis)
      throw InputError{
          message("'", part, "' is not AXIS=ALGORITHM; the axes are dp, pp, cp, ep, tp")};
    check_algorithm(part.substr(equals + 1));
    if (!algorithms.try_emplace(*axis, part.substr(equals + 1)).second)
      throw InputError{message("axis ", name_of(*axis), " is named twice")};
  }
  return algorithms;
}

void add_used_collectives(std::span<const OpRecord> ops, std::set<UsedCollective>& used) {
  for (const OpRecord& record : ops)
    if (const auto call = call_of(record.op); call && call->group.size > 1)
      used.insert({call->group.axis, call->collective, call->group.size, bytes_of(*call)});
}

std::vector<std::string> find_unplanned(const PlanChoice& choice,
                                        const std::set<UsedCollective>& used) {
  std::vector<std::string> notices;
  for (const auto& [axis, algorithm] : choice.algorithms) {
    std::set<Collective> all, missing;
    for (const UsedCollective& use : used) {
      if (use.axis != axis) continue;
      all.insert(use.collective);
      if (!does(algorithm, use.collective)) missing.insert(use.collective);
    }
    if (all.empty())
      throw InputError{message(name_of(axis), '=', algorithm, ": no collective runs over axis ",
                               name_of(axis), " here, or it has one rank; leave it out, or give ",
                               name_of(axis), " more ranks")};
    if (algorithm == "auto") add_missing_rows(axis, choice.table, used, notices);
    if (missing.empty()) continue;
    if (missing != all) {
      notices.push_back(message(name_of(axis), ": ", names_of(missing), " stays native (",
                                algorithm, " has none)"));
      continue;
    }
    std::set<Collective> supported;
    for (std::size_t i = 0; i < num_collectives; ++i)
      if (const auto each = static_cast<Collective>(i); does(algorithm, each))
        supported.insert(each);
    throw InputError{message(name_of(axis), '=', algorithm, ": ", algorithm, " does ",
                             names_of(supported), ", and what runs over ", name_of(axis),
                             " here is ", names_of(all), "; take one of ", algorithms_for(all))};
  }
  return notices;
}

std::vector<int> host_numbers(std::span<const Endpoint> endpoints) {
  std::map<std::string_view, int> numbers;
  std::vector<int> hosts;
  for (const Endpoint& endpoint : endpoints)
    hosts.push_back(
        numbers.try_emplace(endpoint.host, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

std::optional<Call> call_of(const Op& op) {
  using Result = std::optional<Call>;
  return std::visit(overloaded{
                        [](const AllReduce& o) -> Result {
                          return Call{Collective::all_reduce, o.x, o.y, o.group, 0, o.reduction};
                        },
                        [](const AllGather& o) -> Result {
                          return Call{Collective::all_gather, o.x, o.y, o.group};
                        },
                        [](const ReduceScatter& o) -> Result {
                          return Call{
                              Collective::reduce_scatter, o.x, o.y, o.group, 0, o.reduction};
                        },
                        [](const AllToAll& o) -> Result {
                          return Call{Collective::all_to_all, o.x, o.y, o.group};
                        },
                        [](const AllToAllV& o) -> Result {
                          Call call{Collective::all_to_all_v, o.x, o.y, o.group};
                          call.counts = o.counts;
                          return call;
                        },
                        [](const Broadcast& o) -> Result {
                          return Call{Collective::broadcast, o.x, o.y, o.group, o.root};
                        },
                        [](const Reduce& o) -> Result {
                          return Call{Collective::reduce, o.x, o.y, o.group, o.root, o.reduction};
                        },
                        [](const Gather& o) -> Result {
                          return Call{Collective::gather, o.x, o.y, o.group, o.root};
                        },
                        [](const Scatter& o) -> Result {
                          return Call{Collective::scatter, o.x, o.y, o.group, o.root};
                        },
                        [](const Barrier& o) -> Result {
                          return Call{Collective::barrier, {}, {}, o.group};
                        },
                        [](const SendRecv&) -> Result { return std::nullopt; },
                        [](const Local auto&) -> Result { return std::nullopt; },
                    },
                    op);
}

PlannedBackend::PlannedBackend(Backend& inner, PlanChoice choice, std::vector<int> hosts)
    : BackendAdaptor{inner}, choice_{std::move(choice)}, hosts_{std::move(hosts)} {
  for (const auto& [axis, algorithm] : choice_.algorithms) check_algorithm(algorithm);
}

PlannedBackend::~PlannedBackend() {
  for (const auto& list : {std::span<const Scratch>{scratch_}, std::span<const Scratch>{outgrown_}})
    for (const Scratch& scratch : list)
      if (scratch.data != nullptr) inner().deallocate(scratch.data, scratch.bytes);
}

void PlannedBackend::execute(const OpRecord& record) {
  const std::optional<Call> call = call_of(record.op);
  const Plan* plan = call ? plan_for(*call) : nullptr;
  if (plan == nullptr) {
    bytes_sent_ += bytes_wire_of(record.op);
    inner().execute(record);
    return;
  }
  const BoundPlan& ops = bound(*plan, *call, record.lane);
  bytes_sent_ += static_cast<double>(ops.bytes_sent());
  for (const Op& op : ops.ops()) inner().execute({record.seq, record.lane, record.path, op});
}

PlannedProgram plan_program(std::span<const OpRecord> ops, const PlanChoice& choice,
                            const std::vector<int>& hosts) {
  struct Listing final : RecordBackend {
    std::byte* allocate(std::int64_t bytes, Category) override {
      program.scratch_bytes += bytes;
      return nullptr;
    }
    void execute(const OpRecord& record) override { program.ops.push_back(record); }
    PlannedProgram program;
  } listing;
  PlannedBackend planned{listing, choice, hosts};
  for (const OpRecord& record : ops) planned.execute(record);
  listing.program.bytes_sent = planned.bytes_sent();
  return std::move(listing.program);
}

/// Null where the transport does it itself.
const Plan* PlannedBackend::plan_for(const Call& call) {
  const Group& group = call.group;
  const auto chosen = choice_.algorithms.find(group.axis);
  if (group.size == 1 || chosen == choice_.algorithms.end()) return nullptr;
  std::string_view algorithm = chosen->second;
  if (algorithm == "auto")
    algorithm = choice_.table.pick(call.collective, group.size, bytes_of(call));
  if (algorithm == "native") return nullptr;
  const PlanKey key{call.collective, std::string{algorithm}, group.first, group.stride, group.size,
                    call.root};
  const auto [found, is_new] = plans_.try_emplace(key);
  if (is_new) {
    const auto names = algorithm_names(call.collective);
    if (std::ranges::find(names, algorithm) == names.end()) return nullptr;
    std::vector<int> hosts;
    for (int member = 0; member < group.size; ++member)
      hosts.push_back(hosts_.at(static_cast<std::size_t>(group.world_rank(member))));
    found->second =
        std::make_unique<const Plan>(make_plan(call.collective, algorithm, hosts, call.root));
  }
  return found->second.get();
}

const BoundPlan& PlannedBackend::bound(const Plan& plan, const Call& call, Lane lane) {
  const Tensor& shape = call.x ? call.x : call.y;
  const BoundKey key{&plan,       lane,           call.group.position,
                     shape.dtype, call.reduction, call.x.data,
                     call.y.data, shape.numel(),  call.counts.data()};
  // all_to_all_v: the same place may hold other counts next time. Recorded tensors have no place.
  const bool keep = call.counts.empty() && shape.data != nullptr;
  if (const auto found = bound_.find(key); keep && found != bound_.end()) return found->second;
  if (bound_.size() >= max_bound) bound_.clear();
  const std::int64_t numel = BoundPlan::scratch_numel(plan, call);
  return bound_.insert_or_assign(key, BoundPlan{plan, call, scratch(lane, shape.dtype, numel)})
      .first->second;
}

/// One block per lane, since the ops of a lane run one after another.
Tensor PlannedBackend::scratch(Lane lane, DType dtype, std::int64_t numel) {
  if (numel == 0) return {};
  Scratch& block = scratch_[index_of(lane)];
  const std::int64_t bytes = numel * size_of(dtype);
  if (bytes > block.bytes) {
    if (block.bytes > 0) outgrown_.push_back(block);
    block = {inner().allocate(bytes, Category::communication), bytes};
  }
  // Far from the ids that a Rank gives out.
  const auto buffer = ~static_cast<std::uint32_t>(index_of(lane));
  return Tensor{buffer, dtype, Shape{numel}, 0, numel, block.data};
}

}  // namespace shardmark
