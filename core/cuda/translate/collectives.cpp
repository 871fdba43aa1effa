// Communication as NCCL calls. Where there is one member only, or a member's own block already is
// where it belongs, memory is copied or left alone.

#include "core/cuda/translate/parts.hpp"
#include "core/error.hpp"

#include <bit>

namespace shardmark::cuda {
namespace {

void check_contiguous(const char* what, const Tensor& tensor) {
  SHARDMARK_CHECK(tensor.contiguous(), what, " needs contiguous tensors; rows of ", tensor.cols(),
                  " elements are ", tensor.row_stride, " apart");
}

Translation copied(const Tensor& x, const Tensor& y) {
  Translation result;
  if (x.data != y.data && x.numel() > 0)
    result.calls.emplace_back(MemoryCopy{x.data, y.data, x.bytes(), 1, x.bytes(), x.bytes()});
  return result;
}

Translation of_group(const Group& group, std::vector<NcclCall> calls) {
  Translation result;
  if (!calls.empty()) result.calls.emplace_back(NcclGroup{group, std::move(calls)});
  return result;
}

/// The `index`th of blocks of `numel` elements.
std::byte* block(const Tensor& whole, std::int64_t index, std::int64_t numel) {
  return whole.data + index * numel * size_of(whole.dtype);
}

NcclCall send(const std::byte* from, std::int64_t count, DType dtype, int to) {
  return {NcclFunction::send, from, nullptr, count, dtype, Reduction::sum, to};
}
NcclCall receive(std::byte* to, std::int64_t count, DType dtype, int from) {
  return {NcclFunction::receive, nullptr, to, count, dtype, Reduction::sum, from};
}

/// ncclAvg multiplies by 1/n before it adds, which is the sum divided by n only where n is a power
/// of two; of integers it is not rounded as ours. Elsewhere the sum is divided.
bool averages(DType dtype, const Group& group) {
  const bool is_integer = dtype == DType::i32 || dtype == DType::i8;
  return !is_integer && std::has_single_bit(static_cast<unsigned>(group.size));
}
Reduction asked(Reduction reduction, DType dtype, const Group& group) {
  return reduction == Reduction::avg && !averages(dtype, group) ? Reduction::sum : reduction;
}
void divide_sum(Translation& to, Reduction reduction, const Tensor& result, const Group& group,
                const Resources& resources) {
  if (reduction == Reduction::avg && !averages(result.dtype, group))
    append(to, calls_of(Divide{result, group.size}, resources));
}

}  // namespace

Translation calls_of(const AllReduce& op, const Resources& resources) {
  const Tensor& y = op.y ? op.y : op.x;
  check_contiguous("all_reduce", op.x);
  check_contiguous("all_reduce", y);
  if (op.group.size == 1) return copied(op.x, y);
  if (op.x.numel() == 0) return {};
  Translation result =
      of_group(op.group, {{NcclFunction::all_reduce, op.x.data, y.data, op.x.numel(), op.x.dtype,
                           asked(op.reduction, op.x.dtype, op.group)}});
  divide_sum(result, op.reduction, y, op.group, resources);
  return result;
}

Translation calls_of(const AllGather& op, const Resources&) {
  check_contiguous("all_gather", op.x);
  check_contiguous("all_gather", op.y);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (op.x.numel() == 0) return {};
  return of_group(op.group,
                  {{NcclFunction::all_gather, op.x.data, op.y.data, op.x.numel(), op.x.dtype}});
}

Translation calls_of(const ReduceScatter& op, const Resources& resources) {
  check_contiguous("reduce_scatter", op.x);
  check_contiguous("reduce_scatter", op.y);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (op.y.numel() == 0) return {};
  Translation result =
      of_group(op.group, {{NcclFunction::reduce_scatter, op.x.data, op.y.data, op.y.numel(),
                           op.x.dtype, asked(op.reduction, op.x.dtype, op.group)}});
  divide_sum(result, op.reduction, op.y, op.group, resources);
  return result;
}

Translation calls_of(const AllToAll& op, const Resources&) {
  check_contiguous("all_to_all", op.x);
  check_contiguous("all_to_all", op.y);
  const std::int64_t count = op.x.numel() / op.group.size;
  if (op.group.size == 1) return copied(op.x, op.y);
  std::vector<NcclCall> calls;
  for (int peer = 0; peer < op.group.size && count > 0; ++peer) {
    calls.push_back(send(block(op.x, peer, count), count, op.x.dtype, peer));
    calls.push_back(receive(block(op.y, peer, count), count, op.y.dtype, peer));
  }
  return of_group(op.group, std::move(calls));
}

Translation calls_of(const AllToAllV& op, const Resources&) {
  check_contiguous("all_to_all_v", op.x);
  check_contiguous("all_to_all_v", op.y);
  if (op.group.size == 1) return copied(op.x, op.y);
  const auto n = static_cast<std::size_t>(op.group.size);
  const auto me = static_cast<std::size_t>(op.group.position);
  std::vector<NcclCall> calls;
  std::int64_t sent = 0, received = 0;
  for (std::size_t peer = 0; peer < n; ++peer) {
    const std::int64_t to_peer = op.counts[me * n + peer], from_peer = op.counts[peer * n + me];
    const auto member = static_cast<int>(peer);
    if (to_peer > 0) calls.push_back(send(block(op.x, 1, sent), to_peer, op.x.dtype, member));
    if (from_peer > 0)
      calls.push_back(receive(block(op.y, 1, received), from_peer, op.y.dtype, member));
    sent += to_peer;
    received += from_peer;
  }
  return of_group(op.group, std::move(calls));
}

Translation calls_of(const Broadcast& op, const Resources&) {
  const bool is_root = op.group.position == op.root;
  check_contiguous("broadcast", op.y);
  if (is_root) check_contiguous("broadcast", op.x);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (op.y.numel() == 0) return {};
  return of_group(op.group, {{NcclFunction::broadcast, is_root ? op.x.data : nullptr, op.y.data,
                              op.y.numel(), op.y.dtype, Reduction::sum, op.root}});
}

Translation calls_of(const Reduce& op, const Resources& resources) {
  const bool is_root = op.group.position == op.root;
  check_contiguous("reduce", op.x);
  if (is_root) check_contiguous("reduce", op.y);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (op.x.numel() == 0) return {};
  Translation result = of_group(
      op.group, {{NcclFunction::reduce, op.x.data, is_root ? op.y.data : nullptr, op.x.numel(),
                  op.x.dtype, asked(op.reduction, op.x.dtype, op.group), op.root}});
  if (is_root) divide_sum(result, op.reduction, op.y, op.group, resources);
  return result;
}

/// NCCL before 2.28 has no gather: the root receives from each. Its own block is a message to
/// itself, unless it is in place.
Translation calls_of(const Gather& op, const Resources&) {
  const bool is_root = op.group.position == op.root;
  const std::int64_t count = op.x.numel();
  check_contiguous("gather", op.x);
  if (is_root) check_contiguous("gather", op.y);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (count == 0) return {};
  std::vector<NcclCall> calls;
  const bool in_place = is_root && block(op.y, op.root, count) == op.x.data;
  if (!in_place) calls.push_back(send(op.x.data, count, op.x.dtype, op.root));
  for (int peer = 0; is_root && peer < op.group.size; ++peer)
    if (peer != op.root || !in_place)
      calls.push_back(receive(block(op.y, peer, count), count, op.x.dtype, peer));
  return of_group(op.group, std::move(calls));
}

Translation calls_of(const Scatter& op, const Resources&) {
  const bool is_root = op.group.position == op.root;
  const std::int64_t count = op.y.numel();
  check_contiguous("scatter", op.y);
  if (is_root) check_contiguous("scatter", op.x);
  if (op.group.size == 1) return copied(op.x, op.y);
  if (count == 0) return {};
  std::vector<NcclCall> calls;
  const bool in_place = is_root && block(op.x, op.root, count) == op.y.data;
  if (!in_place) calls.push_back(receive(op.y.data, count, op.y.dtype, op.root));
  for (int peer = 0; is_root && peer < op.group.size; ++peer)
    if (peer != op.root || !in_place)
      calls.push_back(send(block(op.x, peer, count), count, op.y.dtype, peer));
  return of_group(op.group, std::move(calls));
}

Translation calls_of(const SendRecv& op, const Resources&) {
  check_contiguous("send_recv", op.x);
  check_contiguous("send_recv", op.y);
  if (op.to >= 0 && op.to == op.group.position) return copied(op.x, op.y);
  std::vector<NcclCall> calls;
  if (op.to >= 0 && op.x.numel() > 0)
    calls.push_back(send(op.x.data, op.x.numel(), op.x.dtype, op.to));
  if (op.from >= 0 && op.y.numel() > 0)
    calls.push_back(receive(op.y.data, op.y.numel(), op.y.dtype, op.from));
  return of_group(op.group, std::move(calls));
}

/// NCCL has no barrier: a sum of one byte of each member is complete once all have come.
Translation calls_of(const Barrier& op, const Resources&) {
  Translation result;
  if (op.group.size == 1) return result;
  result.calls.emplace_back(
      NcclGroup{op.group, {{NcclFunction::all_reduce, nullptr, nullptr, 1, DType::i8}}, true});
  return result;
}

}  // namespace shardmark::cuda
