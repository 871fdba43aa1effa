#include "bench/harness/pipeline_meter.hpp"

#include "bench/harness/together.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

namespace shardmark::bench {
namespace {

/// What a rank sends of an iteration, followed by its kernels.
struct Head {
  std::int64_t begin_ns, end_ns, idle_ns;
  std::uint64_t num_ops;
};
struct Kernel {
  std::int64_t start_ns, end_ns;
  std::uint32_t op;  ///< counts from the iteration's first
  Lane lane;
  OpKind kind;
};

std::string pack(const ProfiledIteration& iteration) {
  const Head head{iteration.begin_ns, iteration.end_ns, iteration.idle_ns, iteration.ops.size()};
  std::vector<Kernel> kernels;
  for (const KernelRecord& record : iteration.records)
    kernels.push_back({record.start_ns, record.end_ns, record.op_seq - iteration.ops.front().seq,
                       record.lane, record.kind});
  std::string bytes(sizeof(Head) + kernels.size() * sizeof(Kernel), '\0');
  std::memcpy(bytes.data(), &head, sizeof(Head));
  std::memcpy(bytes.data() + sizeof(Head), kernels.data(), kernels.size() * sizeof(Kernel));
  return bytes;
}

RankIteration unpack(const std::string& bytes, std::uint64_t num_ops) {
  Head head{};
  std::memcpy(&head, bytes.data(), sizeof(Head));
  SHARDMARK_CHECK(head.num_ops == num_ops, "a rank ran ", head.num_ops,
                  " operations, its recording has ", num_ops);
  std::vector<Kernel> kernels((bytes.size() - sizeof(Head)) / sizeof(Kernel));
  std::memcpy(kernels.data(), bytes.data() + sizeof(Head), kernels.size() * sizeof(Kernel));
  RankIteration rank{head.begin_ns, head.end_ns, head.idle_ns, {}};
  rank.records.reserve(kernels.size());
  for (const Kernel& kernel : kernels)
    rank.records.push_back(
        {kernel.op, kernel.lane, kernel.kind, "", kernel.start_ns, kernel.end_ns});
  return rank;
}

/// Ranks of one host share a clock. Those of several do not: there the windows' first begins, all
/// of which follow the same barrier, are made one.
void align(std::vector<RankIteration>& ranks, const std::vector<Endpoint>& endpoints) {
  std::map<std::string, std::int64_t> begins_ns;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [place, is_new] = begins_ns.try_emplace(endpoints[rank].host, ranks[rank].begin_ns);
    if (!is_new) place->second = std::min(place->second, ranks[rank].begin_ns);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::int64_t zero_ns = begins_ns.at(endpoints[rank].host);
    ranks[rank].begin_ns -= zero_ns;
    ranks[rank].end_ns -= zero_ns;
    for (KernelRecord& record : ranks[rank].records) {
      record.start_ns -= zero_ns;
      record.end_ns -= zero_ns;
    }
  }
}

}  // namespace

PipelineMeter::PipelineMeter(const Case& config, const RunnerOptions& options, int num_active,
                             Transport& transport)
    : transport_{transport}, num_active_{num_active} {
  on_rank_0(transport_, [&] {
    std::vector<std::vector<OpRecord>> lists;
    for (int rank = 0; rank < num_active_; ++rank) {
      recordings_.push_back(
          record_program(config_of_rank(config, rank, transport_.size(), options.replicate),
                         config.phase, options.threads_per_rank));
      lists.push_back(recordings_.back().ops);
    }
    analysis_.emplace(std::move(lists), config.layer.pipeline.schedule->num_stages);
  });
}

void PipelineMeter::add(const ProfiledIteration& iteration) {
  const bool active = transport_.rank() < num_active_;
  const auto waiting = active ? Transport::Waiting::active : Transport::Waiting::idle;
  const std::vector<std::string> all = transport_.gather(active ? pack(iteration) : "", waiting);
  on_rank_0(transport_, [&] {
    std::vector<RankIteration> ranks;
    for (std::size_t rank = 0; rank < recordings_.size(); ++rank)
      ranks.push_back(unpack(all[rank], recordings_[rank].ops.size()));
    align(ranks, transport_.endpoints());
    analysis_->add(ranks);
  });
}

PipelineTimes PipelineMeter::result() const {
  return analysis_ ? analysis_->result() : PipelineTimes{};
}

}  // namespace shardmark::bench
