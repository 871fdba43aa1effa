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

/// A tensor's bytes as the host sees them: its memory, or a copy where that is a device's.
class HostBytes {
 public:
  HostBytes(MeasuredBackend& backend, const Tensor& tensor)
      : backend_{backend}, tensor_{tensor}, is_copy_{!backend.is_host_memory()} {
    if (is_copy_) copy_.resize(static_cast<std::size_t>(tensor.bytes()));
  }
  [[nodiscard]] std::byte* data() { return is_copy_ ? copy_.data() : tensor_.data; }
  /// From the device, and back to it.
  void read() {
    if (is_copy_) backend_.read(tensor_, copy_.data());
  }
  void write() {
    if (is_copy_) backend_.write(tensor_, copy_.data());
  }

 private:
  MeasuredBackend& backend_;
  const Tensor& tensor_;
  bool is_copy_;
  std::vector<std::byte> copy_;
};

/// Pairs of send_recv: the output is the other's input, bit by bit.
Verification verify_pair(const Point& point, const Call& call, const std::byte* received) {
  const int me = call.group.position;
  const int peer = me % 2 == 0 ? me + 1 : me - 1;
  if (peer >= call.group.size || (point.pattern == Pattern::ping && me % 2 == 0)) return {};
  std::vector<std::byte> expected(static_cast<std::size_t>(call.y.bytes()));
  fill_exact(data_of(point, call), peer, expected.data());
  const auto element = static_cast<std::size_t>(size_of(point.dtype));
  Verification found;
  for (std::size_t at = 0; at < expected.size(); at += element) {
    if (std::memcmp(expected.data() + at, received + at, element) == 0) continue;
    if (found.num_wrong++ == 0)
      found.first_wrong = message("element ", at / element, " is not what member ", peer, " sent");
  }
  return found;
}

}  // namespace

void prepare_exact(const Point& point, const Call& call, MeasuredBackend& backend) {
  constexpr int garbage = 0x5A;
  // In place one is a part of the other: what is written last counts.
  for (const Tensor* tensor : {&call.y, &call.x}) {
    if (tensor->data == nullptr) continue;
    HostBytes bytes{backend, *tensor};
    std::memset(bytes.data(), garbage, static_cast<std::size_t>(tensor->bytes()));
    const ExactData data = data_of(point, call);
    const int me = call.group.position;
    if (tensor == &call.x && data.input_numel(me) > 0) fill_exact(data, me, bytes.data());
    bytes.write();
  }
}

Verification verify_exact(const Point& point, const Call& call, MeasuredBackend& backend) {
  const ExactData data = data_of(point, call);
  const std::int64_t numel = data.output_numel(call.group.position);
  if (!is_in_pairs(point) && numel == 0) return {};
  HostBytes bytes{backend, call.y};
  bytes.read();
  if (is_in_pairs(point)) return verify_pair(point, call, bytes.data());
  const ExactResult result = check_exact(data, call.group.position, bytes.data());
  return {result.num_wrong, result.to_string(numel)};
}

}  // namespace shardmark::bench::collectives
