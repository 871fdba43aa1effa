#include "bench/collectives/workspace.hpp"

#include "collectives/formula.hpp"
#include "core/functions.hpp"
#include "core/host.hpp"

#include <algorithm>

namespace shardmark::bench::collectives {
namespace {

constexpr std::int64_t line = 64;

std::int64_t rounded(std::int64_t bytes) { return (bytes + line - 1) / line * line + line; }

/// `numel` elements of a byte buffer, `first` elements from its start.
Tensor view(const Tensor& bytes, DType dtype, std::int64_t first, std::int64_t numel) {
  Tensor tensor = bytes;
  tensor.dtype = dtype;
  tensor.shape = Shape{numel};
  tensor.offset = first;
  tensor.row_stride = numel;
  if (tensor.data != nullptr) tensor.data += first * size_of(dtype);
  return tensor;
}

/// A call on given memory; counts only for all_to_all_v.
Call lay_out(const Point& point, std::int64_t block, bool in_place, const Group& group,
             const Tensor& x_bytes, const Tensor& y_bytes, std::span<const std::int64_t> counts) {
  Call call{point.collective, {}, {}, group, point.root, point.reduction, counts};
  if (point.collective == Collective::barrier) return call;
  const std::int64_t n = group.size, own = group.position * block;
  const DType dtype = point.dtype;
  if (point.collective == Collective::all_to_all_v) {
    std::int64_t sent = 0, received = 0;
    for (std::int64_t peer = 0; peer < n; ++peer) {
      sent += counts[static_cast<std::size_t>(group.position * n + peer)];
      received += counts[static_cast<std::size_t>(peer * n + group.position)];
    }
    call.x = view(x_bytes, dtype, 0, sent);
    call.y = view(y_bytes, dtype, 0, received);
    return call;
  }
  const CollectiveFacts& facts = facts_of(point.collective);
  call.x = view(x_bytes, dtype, 0, facts.input_has_n_blocks ? n * block : block);
  call.y = view(y_bytes, dtype, 0, facts.output_has_n_blocks ? n * block : block);
  if (!in_place) return call;
  if (facts.output_has_n_blocks)
    call.x = view(y_bytes, dtype, own, block);
  else if (facts.input_has_n_blocks)
    call.y = view(x_bytes, dtype, own, block);
  else
    call.x = call.y;
  return call;
}

/// The ops of a pattern of send_recv for this member.
std::vector<Op> pattern_ops(const Call& call, Pattern pattern) {
  const int me = call.group.position;
  const bool even = me % 2 == 0;
  const int peer = even ? me + 1 : me - 1;
  if (peer >= call.group.size) return {};
  const SendRecv send{call.x, {}, call.group, peer, -1};
  const SendRecv receive{{}, call.y, call.group, -1, peer};
  switch (pattern) {
    case Pattern::ping:
      if (even) return {send};
      return {receive};
    case Pattern::ping_pong:
      if (even) return {send, receive};
      return {receive, send};
    default:
      return {SendRecv{call.x, call.y, call.group, peer, peer}};
  }
}

/// What the busiest member's link carries where the transport does it: the least there is.
double native_bytes(const Point& point, const Call& call) {
  if (point.collective == Collective::all_to_all_v) return bytes_wire_of(native_op(call));
  if (point.group_size == 1) return 0;
  return busbw_factor(point.collective, point.group_size) * static_cast<double>(point.size_bytes);
}

}  // namespace

Call sketch_call(const Point& point, std::int64_t block_numel, const Group& group, bool in_place,
                 std::span<const std::int64_t> counts) {
  // Only shapes and overlaps matter: made-up memory of the right size.
  const Tensor x{1, DType::i8, Shape{1}, 0, 1, nullptr}, y{2, DType::i8, Shape{1}, 0, 1, nullptr};
  return lay_out(point, block_numel, in_place, group, x, y, counts);
}

double formula_bytes(const Point& point, const Call& call, const Way& way, const Plan* plan,
                     std::int64_t block_numel, std::span<const int> hosts) {
  if (plan == nullptr) return native_bytes(point, call);
  if (way.is_from_file) return -1;
  const auto numel =
      formula_numel_sent(*plan, hosts, call.group.position, block_numel, call.counts);
  return numel ? static_cast<double>(*numel * size_of(point.dtype)) : -1;
}

Workspace::Workspace(const World& world, const std::string& fault, std::int64_t max_bytes,
                     std::int64_t scratch_bytes, Transport& transport, Engine& engine)
    : backend_{engine.make_backend(transport)}, group_{world.group} {
  Backend* outermost = backend_.get();
  if (!fault.empty()) {
    const Fault parsed = parse_fault(fault);
    only_checks_ = parsed.kind == Fault::Kind::corrupt;
    fault_ = std::make_unique<FaultBackend>(*backend_, transport.rank(), parsed);
    fault_switch_ = std::make_unique<FaultSwitch>(*backend_, *fault_, !only_checks_);
    outermost = fault_switch_.get();
  }
  rank_ = std::make_unique<Rank>(transport.rank(), world.mesh, *outermost);
  engine.connect(group_, lane);
  x_ = rank_->allocate({rounded(max_bytes)}, DType::i8, Category::communication);
  y_ = rank_->allocate({rounded(max_bytes)}, DType::i8, Category::communication);
  if (scratch_bytes > 0)
    scratch_ = rank_->allocate({rounded(scratch_bytes)}, DType::i8, Category::communication);
}

Call Workspace::make_call(const Point& point, std::int64_t block_numel, bool in_place) {
  std::span<const std::int64_t> counts;
  if (point.collective == Collective::all_to_all_v) {
    std::vector<std::int64_t>& all = counts_[block_numel];
    if (all.empty()) all = uneven_counts(group_.size, block_numel);
    counts = all;
  }
  return lay_out(point, block_numel, in_place, group_, x_.tensor(), y_.tensor(), counts);
}

Runnable Workspace::make_runnable(const Point& point, const Plan* plan, const Call& call) {
  if (plan != nullptr) {
    const std::int64_t numel = BoundPlan::scratch_numel(*plan, call);
    return {*plan, call, numel > 0 ? view(scratch_.tensor(), point.dtype, 0, numel) : Tensor{}};
  }
  if (point.pattern != Pattern::none && point.pattern != Pattern::ring)
    return Runnable{pattern_ops(call, point.pattern)};
  return Runnable{{native_op(call)}};
}

Runnable Workspace::make_copy(std::int64_t bytes) {
  return Runnable{
      {Copy{view(x_.tensor(), DType::i8, 0, bytes), view(y_.tensor(), DType::i8, 0, bytes)}}};
}

void Workspace::set_checking(bool checking) {
  if (only_checks_) fault_switch_->set(checking);
}

void Workspace::run(const Runnable& runnable, int count, bool blocking) {
  for (int i = 0; i < count; ++i) {
    for (const Op& op : runnable.ops()) rank_->submit(op, lane);
    if (blocking) rank_->synchronize();
  }
  rank_->synchronize();
}

std::int64_t scratch_bytes_of(const Series& series, const Way& way, std::int64_t block_numel,
                              const Group& group) {
  const std::vector<std::int64_t> counts = uneven_counts(group.size, block_numel);
  std::vector<const Plan*> plans{way.plan.get()};
  for (const auto& [name, plan] : way.choices) plans.push_back(plan.get());
  std::int64_t most = 0;
  for (const Plan* plan : plans) {
    if (plan == nullptr) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && !has_in_place(series.point.collective)) continue;
      const Call call = sketch_call(series.point, block_numel, group, in_place, counts);
      most = std::max(most, BoundPlan::scratch_numel(*plan, call));
    }
  }
  return most * size_of(series.point.dtype);
}

}  // namespace shardmark::bench::collectives
