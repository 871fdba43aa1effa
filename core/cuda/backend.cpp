#include "core/cuda/backend.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark::cuda {
namespace {

/// Fences of the backend itself, one for each lane; Rank counts from below.
Fence own_fence(Lane lane) {
  constexpr std::uint32_t first_own_fence = 0xFFFFFF00;
  return {first_own_fence + static_cast<std::uint32_t>(index_of(lane))};
}

template <class Function>
void for_other_lanes(const Function& function) {
  for (std::size_t i = 0; i < num_lanes; ++i)
    if (static_cast<Lane>(i) != Lane::compute) function(static_cast<Lane>(i));
}

}  // namespace

CudaBackend::~CudaBackend() {
  for (std::size_t i = 0; i < num_lanes; ++i)
    if (workspaces_[i].data != nullptr) device_.free(workspaces_[i].data, static_cast<Lane>(i));
  for (const RotaryTable& table : tables_) deallocate(table.data, 0);
}

void CudaBackend::gather_lanes() {
  for_other_lanes([&](Lane lane) {
    device_.run(EventRecord{own_fence(lane)}, lane);
    device_.run(EventWait{own_fence(lane)}, Lane::compute);
  });
}

void CudaBackend::spread_lanes() {
  device_.run(EventRecord{own_fence(Lane::compute)}, Lane::compute);
  for_other_lanes([&](Lane lane) { device_.run(EventWait{own_fence(Lane::compute)}, lane); });
}

std::byte* CudaBackend::allocate(std::int64_t bytes, Category) {
  std::byte* const data = device_.allocate(bytes, Lane::compute);
  spread_lanes();
  return data;
}

/// After an error of the device nothing runs any more, so that nothing needs to be waited for.
void CudaBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  try {
    gather_lanes();
  } catch (const Error&) {
  }
  device_.free(data, Lane::compute);
}

std::byte* CudaBackend::workspace(std::int64_t bytes, Lane lane) {
  Workspace& block = workspaces_[index_of(lane)];
  if (bytes > block.bytes) {
    if (block.data != nullptr) device_.free(block.data, lane);
    block = {};
    block = {device_.allocate(bytes, lane), bytes};
  }
  return block.data;
}

const float* CudaBackend::table_for(const Rope& op) {
  for (const RotaryTable& table : tables_)
    if (table.places == op.places && std::ranges::equal(table.starts, op.starts) &&
        table.seq == op.seq && table.head_dim == op.head_dim && table.theta == op.theta)
      return reinterpret_cast<const float*>(table.data);
  const std::vector<float> values = rotary_table(op);
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
  std::byte* const data = device_.allocate(bytes, Lane::compute);
  device_.copy_to_device(data, values.data(), bytes, Lane::compute);
  spread_lanes();
  tables_.push_back(
      {op.places, {op.starts.begin(), op.starts.end()}, op.seq, op.head_dim, op.theta, data});
  return reinterpret_cast<const float*>(data);
}

std::string CudaBackend::refused_attention() {
  for (const Call& call : translation_.calls)
    if (const auto* attention = std::get_if<FusedAttention>(&call))
      if (const AttentionSupport& support = device_.fused_attention(*attention);
          !support.why_not.empty())
        return support.why_not;
  return {};
}

void CudaBackend::translate_op(const OpRecord& record) {
  const auto* rope = std::get_if<Rope>(&record.op);
  Resources resources{.rotary_table = rope == nullptr ? nullptr : table_for(*rope),
                      .allow_tf32 = options_.allow_tf32};
  const auto translate_again = [&] {
    resources.workspace = workspace(workspace_bytes(record.op, resources), record.lane);
    translate(record.op, resources, translation_);
  };
  const bool is_attention = std::holds_alternative<Attention>(record.op) ||
                            std::holds_alternative<AttentionBackward>(record.op);
  if (!is_attention) return translate_again();
  std::string why_not = why_not_fused(record.op);
  if (why_not.empty()) why_not = device_.fused_attention().why_not;
  resources.fused_attention = options_.fused_attention && why_not.empty();
  translate_again();
  if (resources.fused_attention) {
    why_not = refused_attention();
    resources.fused_attention = why_not.empty();
    if (!resources.fused_attention) translate_again();
  }
  if (!why_not.empty() && options_.fused_attention) notices_.insert(why_not);
}

void CudaBackend::execute(const OpRecord& record) {
  const auto where = [&] { return record.path->empty() ? std::string{"-"} : *record.path; };
  if (const auto* signal = std::get_if<Signal>(&record.op))
    last_fence_ = std::max(last_fence_, signal->fence.id);
  if (const auto* await = std::get_if<Await>(&record.op))
    SHARDMARK_CHECK(await->fence.id <= last_fence_, where(), ": lane ", name_of(record.lane),
                    " waits for fence ", await->fence.id, ", which no lane has signalled");
  translate_op(record);
  if (!translation_.unavailable.empty())
    throw InputError{message(where(), ": ", name_of(record.op), ": ", translation_.unavailable)};
  for (const Call& call : translation_.calls) device_.run(call, record.lane);
}

void CudaBackend::write(const Tensor& to, const void* from) {
  SHARDMARK_CHECK(to.contiguous(), "write needs a contiguous tensor");
  gather_lanes();
  device_.copy_to_device(to.data, from, to.bytes(), Lane::compute);
  spread_lanes();
}

void CudaBackend::read(const Tensor& from, void* to) {
  SHARDMARK_CHECK(from.contiguous(), "read needs a contiguous tensor");
  gather_lanes();
  device_.copy_to_host(to, from.data, from.bytes(), Lane::compute);
  device_.synchronize();
}

}  // namespace shardmark::cuda
