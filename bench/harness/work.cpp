#include "bench/harness/work.hpp"

#include "layers/pipeline_memory.hpp"

#include <set>
#include <tuple>

namespace shardmark::bench {
namespace {

/// Adds up tensors, each view once.
class DistinctBytes {
 public:
  void add(const Tensor& tensor) {
    const auto key = std::tuple{tensor.buffer, tensor.offset, tensor.rows(), tensor.cols()};
    if (seen_.insert(key).second) bytes_ += static_cast<double>(tensor.bytes());
  }
  [[nodiscard]] double bytes() const { return bytes_; }

 private:
  std::set<std::tuple<std::uint32_t, std::int64_t, std::int64_t, std::int64_t>> seen_;
  double bytes_{0};
};

/// Backward executes 5 matmuls where 4 would do if the probabilities were kept.
double useful_flops(const Op& op) {
  constexpr double useful_of_backward = 4.0 / 5.0;
  return flops_of(op) * (std::holds_alternative<AttentionBackward>(op) ? useful_of_backward : 1);
}

}  // namespace

RankWork work_of(const Recording& recording, const LayerConfig& config) {
  RankWork work;
  DistinctBytes kv;
  for (const OpRecord& record : recording.ops) {
    work.flops_useful += useful_flops(record.op);
    if (const auto* forward = std::get_if<Attention>(&record.op)) {
      kv.add(forward->k);
      kv.add(forward->v);
    } else if (const auto* backward = std::get_if<AttentionBackward>(&record.op)) {
      kv.add(backward->k);
      kv.add(backward->v);
    }
  }
  const MemoryPoint peak = memory_timeline(recording.memory).peak;
  work.flops_done = recording.flops;
  work.bytes_plan = recording.bytes_wire;
  work.activation_bytes = static_cast<double>(peak[Category::activation]);
  work.activation_claim_bytes = static_cast<double>(claimed_activation_bytes(config));
  work.exchange_bytes = static_cast<double>(peak[Category::communication]);
  work.kv_bytes = kv.bytes();
  return work;
}

double mean_flops_done(std::span<const RankWork> ranks) {
  double sum = 0;
  for (const RankWork& rank : ranks) sum += rank.flops_done;
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

}  // namespace shardmark::bench
