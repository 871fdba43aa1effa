#pragma once

#include "bench/context/replay.hpp"
#include "bench/harness/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::context {

/// Closed forms for one shape at one degree, attention alone, forward, without masks other than
/// causal (METRICS of the project: Ring Attention arXiv 2310.01889, DeepSpeed-Ulysses arXiv
/// 2309.14509). P = cp, b = batch, s = seq, e = bytes per element, h = heads / tp * head_dim,
/// hkv = kv_heads / tp * head_dim, c = 1 for full attention and 1/2 for balanced causal.
struct Formulas {
  double ring_bytes{0};     ///< 2(P-1)/P b s hkv e
  double ulysses_bytes{0};  ///< (P-1)/P (b s/P) (2h + 2hkv) e
  double equal_cp{0};       ///< (h + hkv) / hkv: the ring moves less below it
  double ring_us{0};        ///< (P-1) latency + ring_bytes / bandwidth
  double ulysses_us{0};     ///< 2 latency + ulysses_bytes / bandwidth
  /// Where both take equally long; nothing if one of them is faster at every length.
  std::optional<double> equal_seq;
  /// Shortest sequence whose block compute, 4 b h c x^2 / F with x = s/P, is at least as long as
  /// the exchange of a step behind it, latency + 2 x b hkv e / bandwidth; backward 10 and
  /// 2 x b hkv (e + 4). Infinite without a compute rate.
  double hiding_seq_forward{0}, hiding_seq_backward{0};
  std::int64_t most_ulysses{0};  ///< heads / tp
  std::int64_t kv_limit{0};      ///< kv_heads / tp, at least 1: K and V are sent repeatedly beyond
};
/// `ring` and `ulysses` are the links that the two would use.
[[nodiscard]] Formulas formulas_of(const LayerConfig& config, const LinkRate& ring,
                                   const LinkRate& ulysses, double forward_tflops,
                                   double backward_tflops);

/// One way to split a shape, and what it took where it was measured.
struct Candidate {
  Case config;
  Prediction prediction;
  double measured_us{0};  ///< p50, 0 = not measured
};
/// What the rates say about one shape at one degree.
struct Advice {
  std::vector<Candidate> candidates;  ///< fastest prediction first
  Formulas formulas;
  LinkRate ring, ulysses;
  double forward_tflops{0}, backward_tflops{0};

  [[nodiscard]] const Candidate& predicted() const { return candidates.front(); }
  /// The fastest measured one, null unless all were measured.
  [[nodiscard]] const Candidate* measured() const;
  /// Whether the kind predicted as the fastest was measured as the fastest.
  [[nodiscard]] bool agrees() const;
  /// How much longer the predicted split took than the fastest measured one; 0 if not measured.
  [[nodiscard]] double regret_pct() const;
};

/// One advice per shape, tp and cp above 1 among the cases that can run.
[[nodiscard]] std::vector<Advice> advise(std::span<const Case> cases, const MachineRates& rates);
/// Adds what was measured, also where --resume found the row before.
void add_measured(std::vector<Advice>& advice, std::span<const Result> results);

/// Prints every number with its formula and inputs.
void print(std::ostream& out, const MachineRates& rates, std::span<const Advice> advice);
[[nodiscard]] nlohmann::ordered_json to_json(const MachineRates& rates,
                                             std::span<const Advice> advice);

}  // namespace shardmark::bench::context
