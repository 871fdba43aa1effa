// The columns of results.csv that are of inference.

#include "bench/harness/column_list.hpp"
#include "layers/inference_program.hpp"

namespace shardmark::bench {
namespace {

using enum Column::Holds;
using Of = Column::Of;
using R = const Row&;

/// What `value` says of a row of inference, or of one of its steps; empty for others.
template <class Value>
std::string of_inference(R r, const Value& value) {
  return r.result.config.layer.inference ? text(value(r.result)) : std::string{};
}
template <class Value>
std::string of_step(R r, InferenceStep step, const Value& value) {
  const auto& run = r.result.config.layer.inference;
  return run && run->step == step ? text(value(r.result)) : std::string{};
}

}  // namespace

std::vector<Column> inference_columns() {
  return {
      {"ttft_us", "us",
       "prefill: from the start of all requests at once to a request's first token, mean over "
       "them; of a single one the iteration, in which the token also returns to the first stage",
       measured, [](R r) { return of_step(r, InferenceStep::prefill, ttft_us); }, Of::pp},
      {"time_per_token_us", "us",
       "decode: from one token of a request to its next, time_us_p50 / tokens", measured,
       [](R r) { return of_step(r, InferenceStep::decode, time_per_token_us); }, Of::pp},
      {"tokens_per_s", "tokens/s",
       "all requests: decode new tokens, prefill those of the prompts, over time_us_p50", measured,
       [](R r) { return of_inference(r, tokens_per_s); }, Of::pp},
      {"hop_us", "us",
       "a single request on several stages, profiled iteration: (its time - the sum over stages "
       "and tokens of first to last kernel there) / messages, pp for each token",
       measured,
       [](R r) {
         const auto& times = r.result.inference;
         return times && times->hop_us > 0 ? text(times->hop_us) : std::string{};
       },
       Of::pp},
      {"kv_cache_bytes", "bytes",
       "keys and values that the rank with the most blocks keeps for all requests", measured,
       [](R r) {
         return of_inference(
             r, [](const Result& result) { return kv_cache_bytes(result.config.layer); });
       },
       Of::pp},
  };
}

}  // namespace shardmark::bench
