#pragma once

#include "bench/harness/measure.hpp"
#include "core/transport.hpp"

#include <string>

namespace shardmark::bench {

/// Runs forward and backward of `config` once on random data and writes every tensor of every rank
/// to `folder` as .npy, with manifest.json (rank 0): what each file holds, which part of which
/// global tensor, and how it came about. bf16 is widened to f32. Collective.
void dump(Runner& runner, Case config, const RunnerOptions& options, Transport& transport,
          const std::string& folder);

}  // namespace shardmark::bench
