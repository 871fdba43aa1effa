#pragma once

#include "layers/program.hpp"

#include <cstdint>

namespace shardmark {

/// Runs this rank's stage of `config.pipeline.blocks` (one stage per pp position, in order) for
/// `config.inference`: forward passes of requests, each over all stages and back to the first.
///
/// A pass embeds what is new of a request, runs the blocks, sends the result on; the last stage
/// takes the logits of each sequence's last token, looks for the largest, and sends a token to the
/// first stage (4 bytes a sequence), which embeds it in the request's next pass. Which token that
/// is makes no difference to time: instead of the largest logit's, it is one of the inputs.
/// Requests take turns: token 0 of all of them, then token 1. So a single request waits for each
/// stage in turn, and as many as there are stages keep all of them busy. Every pass is recorded, so
/// check_divisible allows 100,000 of them in an iteration.
///
/// prefill: the `seq` tokens of the prompts; their keys and values end in a cache.
/// decode: one token of each sequence, which sees `seq` cached ones and itself. Every pass writes
/// the same place of the cache, so all of them cost what a token at context length seq costs.
///
/// Memory: a cache per request and block. Activations of one pass, which all blocks and requests
/// share; two boundary tensors for each direction, so that messages travel behind compute; no
/// gradients.
[[nodiscard]] std::unique_ptr<LayerProgram> make_inference_program(Rank& rank,
                                                                   const LayerConfig& config);

/// What the layers of one pass work on: in decode one token behind `past` ones.
[[nodiscard]] LayerConfig pass_config(const LayerConfig& config);

/// Caches of all requests on the rank with the most blocks.
[[nodiscard]] std::int64_t kv_cache_bytes(const LayerConfig& config);

}  // namespace shardmark
