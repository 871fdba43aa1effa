#pragma once

#include "bench/harness/session.hpp"

#include <optional>
#include <vector>

namespace shardmark::bench {

/// Brings the profiled iterations of a pipeline together on rank 0 and splits them there, one by
/// one. Every rank of the world makes one and calls it alike.
class PipelineMeter {
 public:
  /// The first `num_active` ranks of the world run `config`. `transport` must outlive this.
  PipelineMeter(const Case& config, const RunnerOptions& options, int num_active,
                Transport& transport);
  /// Collective; ranks outside of the case give an empty iteration.
  void add(const ProfiledIteration& iteration);
  /// On rank 0; empty on others.
  [[nodiscard]] PipelineTimes result() const;

 private:
  Transport& transport_;
  int num_active_;
  std::vector<Recording> recordings_;         ///< own the paths of the lists
  std::optional<PipelineAnalysis> analysis_;  ///< on rank 0
};

}  // namespace shardmark::bench
