#pragma once

#include "layers/shape.hpp"

#include <vector>

namespace shardmark::bench {

struct Result;
struct RankTrace;

/// What a profiled iteration of inference says beyond its length.
struct InferenceTimes {
  /// When the requests' last kernels had run on the last stage: the mean over them, as a share of
  /// when the last of these had.
  double mean_done{1};
  /// A single request on several stages: the time that it was on no stage, over its messages (from
  /// stage to stage, and the token back to the first). It is on a stage from the first kernel of a
  /// pass to the last, collectives of tp in between included. Only differences on one rank's clock
  /// are used. 0 for other rows.
  double hop_us{0};
  /// Shares of the window, mean over stages: kernels or collectives of tp run; the latter alone.
  double on_stage{1}, in_collectives{0};
};
/// `traces`: of at least tp position 0 of every stage.
[[nodiscard]] InferenceTimes inference_times(const LayerConfig& layer,
                                             const std::vector<RankTrace>& traces);

// Of a row with times (Result::inference). A token is counted for each sequence of a request.

/// prefill: from the requests' start, all at once, to their first token, mean over the requests.
[[nodiscard]] double ttft_us(const Result& result);
/// decode: from one token of a request to its next.
[[nodiscard]] double time_per_token_us(const Result& result);
/// All requests: decode new tokens, prefill those of the prompts.
[[nodiscard]] double tokens_per_s(const Result& result);

}  // namespace shardmark::bench
