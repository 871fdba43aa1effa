#include "core/cuda/staging.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark::cuda {
namespace {

constexpr std::int64_t alignment = 256;

/// Device memory of tensors that overlap, and where it is in the host's block.
struct Range {
  const std::byte *begin, *end;
  std::int64_t offset{0};
};

std::vector<Range> ranges_of(const Touches& touched) {
  std::vector<Range> ranges;
  for (const auto* tensors : {&touched.reads, &touched.writes})
    for (const Tensor& tensor : *tensors) {
      SHARDMARK_CHECK(tensor.contiguous(), "communication needs contiguous tensors");
      if (tensor.numel() > 0) ranges.push_back({tensor.data, tensor.data + tensor.bytes()});
    }
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (merged.empty() || range.begin >= merged.back().end)
      merged.push_back(range);
    else
      merged.back().end = std::max(merged.back().end, range.end);
  }
  return merged;
}

/// Gives every range its place; the bytes of all of them.
std::int64_t lay_out(std::vector<Range>& ranges) {
  std::int64_t bytes = 0;
  for (Range& range : ranges) {
    range.offset = bytes;
    bytes += (range.end - range.begin + alignment - 1) / alignment * alignment;
  }
  return bytes;
}

/// What the op does not touch on this rank stays where it is.
std::byte* moved(const std::vector<Range>& ranges, std::byte* host, std::byte* data) {
  for (const Range& range : ranges)
    if (data >= range.begin && data < range.end) return host + range.offset + (data - range.begin);
  return data;
}

}  // namespace

Staging::~Staging() {
  free_outgrown();
  for (const Block& block : blocks_)
    if (block.data != nullptr) device_.free_host(block.data);
}

void Staging::free_outgrown() noexcept {
  for (std::byte* data : outgrown_) device_.free_host(data);
  outgrown_.clear();
}

std::byte* Staging::block(std::int64_t bytes, Lane lane) {
  Block& block = blocks_[index_of(lane)];
  if (bytes > block.bytes) {
    std::byte* const larger = device_.allocate_host(bytes);
    if (block.data != nullptr) outgrown_.push_back(block.data);
    block = {larger, bytes};
  }
  return block.data;
}

StagedOp Staging::stage(const Op& op, Lane lane) {
  const Touches touched = touches(op);
  std::vector<Range> ranges = ranges_of(touched);
  std::byte* const host = block(lay_out(ranges), lane);
  StagedOp staged{op, {}, {}};
  for (const Tensor& tensor : touched.reads)
    if (tensor.numel() > 0)
      staged.to_host.push_back({tensor.data, moved(ranges, host, tensor.data), tensor.bytes(), 1,
                                tensor.bytes(), tensor.bytes()});
  for (const Tensor& tensor : touched.writes)
    if (tensor.numel() > 0)
      staged.to_device.push_back({moved(ranges, host, tensor.data), tensor.data, tensor.bytes(), 1,
                                  tensor.bytes(), tensor.bytes()});
  std::visit(
      [&](auto& o) {
        if constexpr (requires {
                        o.group;
                        o.x;
                        o.y;
                      }) {
          o.x.data = moved(ranges, host, o.x.data);
          o.y.data = moved(ranges, host, o.y.data);
        }
      },
      staged.op);
  return staged;
}

}  // namespace shardmark::cuda
