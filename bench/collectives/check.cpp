#include "bench/collectives/check.hpp"

#include "collectives/exact.hpp"
#include "core/error.hpp"

#include <cstring>
#include <vector>

namespace shardmark::bench::collectives {
namespace {

ExactData data_of(const Point& point, const Call& call) {
  ExactData data{.collective = point.collective,
                 .dtype = point.dtype,
                 .reduction = point.reduction,
                 .group_size = call.group.size,
                 .root = point.root,
                 .counts = call.counts};
  data.block_numel = facts_of(point.collective).input_has_n_blocks
                         ? call.x.numel() / call.group.size
                         : call.x.numel();
  data.seed = static_cast<std::uint32_t>(point.size_bytes) + (point.in_place ? 1U : 0U);
  return data;
}

bool is_in_pairs(const Point& point) {
  return point.pattern != Pattern::none && point.pattern != Pattern::ring;
}

/// Pairs of send_recv: the output is the other's input, bit by bit.
Verification verify_pair(const Point& point, const Call& call) {
  const int me = call.group.position;
  const int peer = me % 2 == 0 ? me + 1 : me - 1;
  if (peer >= call.group.size || (point.pattern == Pattern::ping && me % 2 == 0)) return {};
  std::vector<std::byte> expected(static_cast<std::size_t>(call.y.bytes()));
  fill_exact(data_of(point, call), peer, expected.data());
  const auto element = static_cast<std::size_t>(size_of(point.dtype));
  Verification found;
  for (std::size_t at = 0; at < expected.size(); at += element) {
    if (std::memcmp(expected.data() + at, call.y.data + at, element) == 0) continue;
    if (found.num_wrong++ == 0)
      found.first_wrong = message("element ", at / element, " is not what member ", peer, " sent");
  }
  return found;
}

}  // namespace

void prepare_exact(const Point& point, const Call& call) {
  constexpr int garbage = 0x5A;
  const auto wipe = [](const Tensor& tensor) {
    if (tensor.data != nullptr)
      std::memset(tensor.data, garbage, static_cast<std::size_t>(tensor.bytes()));
  };
  wipe(call.y);
  if (!call.x) return;
  wipe(call.x);
  const ExactData data = data_of(point, call);
  if (data.input_numel(call.group.position) > 0) fill_exact(data, call.group.position, call.x.data);
}

Verification verify_exact(const Point& point, const Call& call) {
  if (is_in_pairs(point)) return verify_pair(point, call);
  const ExactData data = data_of(point, call);
  const std::int64_t numel = data.output_numel(call.group.position);
  if (numel == 0) return {};
  const ExactResult result = check_exact(data, call.group.position, call.y.data);
  return {result.num_wrong, result.to_string(numel)};
}

}  // namespace shardmark::bench::collectives
